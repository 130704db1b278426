"""Processes that answer requests; what is asked of a subject and of the oracle together. Standard library."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..setup import ROOT
from .cells import Cell

# Seconds; no request takes nearly as long.
TIMEOUT = 180.0


class Worker:
    """A process that answers requests, one JSON object a line each."""

    def __init__(
        self, interpreter: str, module: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> None:
        command = [interpreter, "-m", f"benchmarks.gate.{module}", *arguments]
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer, or ``{"error": ...}``."""
        assert self.process.stdin and self.process.stdout
        timer = threading.Timer(TIMEOUT, self.process.kill)
        timer.start()
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.errors.seek(0)
        last = (self.errors.read().strip().splitlines() or ["it printed nothing"])[-1]
        return {"error": f"the process ended with {self.process.wait()}: {last}"}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream:
                stream.close()


@contextmanager
def workers(*made: tuple[str, str, str]) -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        found = []
        for interpreter, module, folder in made:
            found.append(Worker(interpreter, module, folder))
            stack.callback(found[-1].close)
        yield found


def check(worker: Worker, oracle: Worker, cell: Cell, out: str) -> str | None:
    """What is wrong with a subject in a cell, if anything is."""
    made = worker.ask(do="check", cell=cell.to_json(), out=out)
    if "error" in made:
        return str(made["error"])
    answer = oracle.ask(cell=cell.to_json(), report=made)
    problem: str | None = answer.get("error") or answer["problem"]
    return problem


def judged(worker: Worker, oracle: Worker, request: dict[str, Any], number: int) -> dict[str, Any]:
    """Plays a recording; in the first round the oracle looks at the last frame."""
    answer = worker.ask(**request)
    if "error" not in answer and number == 0:
        verdict = oracle.ask(play=request)
        problem = verdict.get("error") or verdict["problem"]
        if problem:
            return {"error": problem}
    return answer
