"""Breaks the publication protocol in one place at a time and asks the loom models to notice.

    python ci/mutate_publish.py [WORD ...]      only mutations whose name has one of the words

Each mutation is made in a copy of the crate under ``target/mutate``. The models are run one by one, those that are
expected to fail first, until one fails. Prints a Markdown table. Fails if a mutation is not noticed by any model and is
not listed as harmless, or is noticed and listed as harmless.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "target/mutate"
TIMEOUT = 600
POOL, WAIT = "src/publish/pool.rs", "src/publish/wait.rs"
IN_WAIT = {"ring(", "wait<", "ring_for_somebody("}


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    function: str
    old: str
    new: str
    model: str = ""
    """Where it is expected to be noticed; a hint that saves time."""
    harmless: str = ""
    """Why no model can notice it."""

    def apply(self, source: str) -> str:
        start = source.index(f"fn {self.function}")
        end = source.find("\n    }\n", start)
        body = source[start:end]
        if body.count(self.old) != 1:
            raise SystemExit(f"{self.name}: {self.old!r} occurs {body.count(self.old)} times in {self.function}")
        return source[:start] + body.replace(self.old, self.new) + source[end:]


def weaker(function: str, of: str, operation: str, ordering: str, **more: str) -> Mutation:
    """The ordering of one operation made ``Relaxed``."""
    file = WAIT if function in IN_WAIT else POOL
    name = f"`{of}` {operation.split('(')[0].lstrip('.')} in `{function.rstrip('(<')}`: {ordering} → Relaxed"
    new = re.sub(rf"Ordering::{ordering}", "Ordering::Relaxed", operation, count=1)
    return Mutation(name, file, function, operation, new, **more)


def changed(name: str, function: str, old: str, new: str, **more: str) -> Mutation:
    file = WAIT if function in IN_WAIT else POOL
    return Mutation(name, file, function, old, new, **more)


MUTATIONS = [
    # Orderings
    weaker(
        "read(", "latest", ".load(Ordering::Acquire)", "Acquire",
        harmless="Safety does not rest on it, as the generation is checked behind the acquiring visit. Without it a reader may"
        " come before the writer's open, be turned away, and find the same `latest` again. loom makes changes in"
        " the order in which it runs them, so it cannot show this.",
    ),
    weaker("read(", "state", ".fetch_add(VISITOR, Ordering::Acquire)", "Acquire", model="recycled"),
    weaker("give_back(", "state", ".fetch_sub(what, Ordering::Release)", "Release", model="recycled"),
    weaker(
        "discard(", "state", ".compare_exchange(RETIRED, CLOSED, Ordering::Acquire", "Acquire", model="one_off"
    ),
    weaker("discard(", "state", ".fetch_and(!CLOSED, Ordering::Release)", "Release", model="one_off"),
    changed(
        "`state` compare_exchange_weak in `reap`: Acquire → Relaxed", "reap(",
        "state | CLOSED,\n                Ordering::Acquire", "state | CLOSED,\n                Ordering::Relaxed",
        model="objects",
    ),
    weaker("reap(", "state", ".fetch_and(!CLOSED, Ordering::Release)", "Release", model="objects_left_to_readers"),
    weaker(
        "leave_unreaped(", "unreaped", ".swap(true, Ordering::Release)", "Release",
        model="objects_left_to_readers",
    ),
    weaker(
        "reap_rest(", "unreaped", ".swap(false, Ordering::Acquire)", "Acquire", model="objects_left_to_readers"
    ),
    weaker(
        "claim(", "state", ".compare_exchange(state, CLOSED, Ordering::Acquire", "Acquire", model="recycled"
    ),
    weaker("publish(", "state", ".fetch_sub(CLOSED - LEASE, Ordering::Release)", "Release", model="recycled"),
    weaker(
        "publish(", "latest", ".store(sequence << INDEX_BITS | index as u64, Ordering::SeqCst)", "SeqCst",
        model="waiting",
    ),
    changed(
        "`latest` store in `publish`: SeqCst → Release", "publish(",
        "index as u64, Ordering::SeqCst", "index as u64, Ordering::Release", model="waiting",
    ),
    weaker("retire(", "state", ".fetch_or(RETIRED, Ordering::Release)", "Release", model="one_off_objects"),
    weaker("abandon(", "state", ".fetch_and(!CLOSED, Ordering::Release)", "Release", model="abandoned"),
    weaker("latest_sequence(", "latest", ".load(Ordering::SeqCst)", "SeqCst", model="waiting"),
    changed(
        "`latest` load in `latest_sequence`: SeqCst → Acquire", "latest_sequence(",
        "Ordering::SeqCst", "Ordering::Acquire", model="waiting",
    ),
    weaker("ring(", "waiters", ".load(Ordering::SeqCst)", "SeqCst", model="waiting"),
    changed(
        "`waiters` load in `ring`: SeqCst → Acquire", "ring(", "Ordering::SeqCst", "Ordering::Acquire",
        model="waiting",
    ),
    weaker("wait<", "waiters", ".fetch_add(1, Ordering::SeqCst)", "SeqCst", model="waiting"),
    changed(
        "`waiters` fetch_add in `wait`: SeqCst → AcqRel", "wait<",
        ".fetch_add(1, Ordering::SeqCst)", ".fetch_add(1, Ordering::AcqRel)", model="waiting",
    ),
    # The reader
    changed("A reader stays in a closed slot", "read(", "(CLOSED | RETIRED)", "RETIRED", model="recycled"),
    changed("A reader stays in a retired slot", "read(", "(CLOSED | RETIRED)", "CLOSED", model="objects"),
    changed(
        "The generation is not checked", "read(",
        "slot.generation.load(Ordering::Relaxed) == sequence", "true", model="recycled",
    ),
    changed(
        "The generation is checked before the visit", "read(",
        "let before = slot.state.fetch_add(VISITOR, Ordering::Acquire);\n            if before & (CLOSED | RETIRED) == 0 && "
        "slot.generation.load(Ordering::Relaxed) == sequence {",
        "let holds = slot.generation.load(Ordering::Acquire) == sequence;\n"
        "            let before = slot.state.fetch_add(VISITOR, Ordering::Acquire);\n"
        "            if before & (CLOSED | RETIRED) == 0 && holds {",
        model="recycled",
    ),
    changed(
        "A visitor does not count itself", "read(",
        "slot.state.fetch_add(VISITOR, Ordering::Acquire)",
        "{ slot.state.fetch_add(VISITOR, Ordering::Acquire); slot.state.fetch_sub(VISITOR, Ordering::Release) - VISITOR }",
        model="recycled",
    ),
    changed(
        "A lease is added after the visit", "lease(",
        "self.slot.state.fetch_add(LEASE, Ordering::Relaxed);",
        "self.slot.state.fetch_sub(VISITOR, Ordering::Release);\n"
        "        self.slot.state.fetch_add(LEASE + VISITOR, Ordering::Relaxed);",
        model="leases",
    ),
    # One-off memory
    changed(
        "The last one out does not free the frame", "give_back(", "before == what | RETIRED", "false", model="one_off"
    ),
    changed(
        "The frame is freed without closing the slot", "discard(",
        "slot.state.compare_exchange(RETIRED, CLOSED, Ordering::Acquire, Ordering::Relaxed).is_ok()",
        "slot.state.fetch_or(CLOSED, Ordering::Acquire) & CLOSED == 0", model="one_off",
    ),
    changed(
        "The generation is kept when the frame is freed", "discard(",
        "slot.generation.store(0, Ordering::Relaxed);", "", model="one_off",
    ),
    changed(
        "`discard` opens by a store", "discard(",
        "slot.state.fetch_and(!CLOSED, Ordering::Release)", "slot.state.store(0, Ordering::Release)", model="one_off",
    ),
    # Views
    changed(
        "`reap` does not look for visitors", "reap(", "state & VISITORS != 0", "false", model="objects"
    ),
    changed(
        "`reap` does not look for the mark", "reap(", "state & RETIRED == 0 || state & CLOSED != 0",
        "state & CLOSED != 0", model="objects_in_recycled_slots",
    ),
    changed(
        "`reap` goes into closed slots", "reap(", "state & RETIRED == 0 || state & CLOSED != 0",
        "state & RETIRED == 0", model="objects_left_to_readers",
    ),
    changed(
        "`reap` does not close the slot", "reap(", "state | CLOSED,", "state,", model="objects",
    ),
    changed(
        "`reap` opens by a store", "reap(",
        "slot.state.fetch_and(!CLOSED, Ordering::Release) == CLOSED | RETIRED",
        "{ slot.state.store(state, Ordering::Release); state == RETIRED }", model="objects",
    ),
    changed(
        "`reap` does not free the frame that nobody holds", "reap(", "&& index >= self.keep", "&& false",
        model="one_off_objects",
    ),
    changed(
        "`reap` does not say that it found visitors", "reap(", "self.leave_unreaped();", "", model="objects"
    ),
    changed(
        "Views left are noted by a store", "leave_unreaped(",
        "self.unreaped.swap(true, Ordering::Release)", "self.unreaped.store(true, Ordering::Release)",
        model="objects_left_by_two",
    ),
    changed(
        "The note is cleared after the search", "reap_rest(",
        "if self.unreaped.swap(false, Ordering::Acquire) {",
        "if self.unreaped.swap(true, Ordering::Acquire) {\n"
        "            struct Clear<'a>(&'a AtomicBool);\n"
        "            impl Drop for Clear<'_> {\n"
        "                fn drop(&mut self) { self.0.swap(false, Ordering::AcqRel); }\n"
        "            }\n"
        "            let _clear = Clear(&self.unreaped);",
        model="objects_left_to_readers",
    ),
    # The writer
    changed(
        "`claim` does not look for visitors", "claim(",
        "state & !RETIRED == 0", "state & !(RETIRED | VISITORS) == 0", model="recycled",
    ),
    changed(
        "`claim` does not look for leases", "claim(",
        "state & !RETIRED == 0", "state & (VISITORS | CLOSED) == 0", model="leases",
    ),
    changed(
        "`claim` closes by a store", "claim(",
        "slot.state.compare_exchange(state, CLOSED, Ordering::Acquire, Ordering::Relaxed).is_ok()",
        "{ slot.state.load(Ordering::Acquire); slot.state.store(CLOSED, Ordering::Relaxed); true }",
        model="recycled",
    ),
    changed("`claim` leaves the view in", "claim(", "drop(slot.view.take());", "", model="objects_in_recycled_slots"),
    changed(
        "`claim` keeps the generation", "claim(", "slot.generation.store(0, Ordering::Relaxed);", "", model="abandoned"
    ),
    changed(
        "`publish` opens by a store", "publish(",
        "slot.state.fetch_sub(CLOSED - LEASE, Ordering::Release)", "slot.state.store(LEASE, Ordering::Release)",
        model="recycled",
    ),
    changed(
        "`publish` opens without a lease for the board", "publish(",
        "slot.state.fetch_sub(CLOSED - LEASE, Ordering::Release);",
        "slot.state.fetch_and(!CLOSED, Ordering::Release);", model="recycled",
    ),
    changed(
        "`publish` keeps the generation", "publish(",
        "slot.generation.store(sequence, Ordering::Relaxed);", "", model="recycled",
    ),
    changed(
        "`publish` puts the slot up before it opens it", "publish(",
        "slot.state.fetch_sub(CLOSED - LEASE, Ordering::Release);\n        self.pool.latest.store(sequence << INDEX_BITS"
        " | index as u64, Ordering::SeqCst);",
        "self.pool.latest.store(sequence << INDEX_BITS | index as u64, Ordering::SeqCst);\n"
        "        slot.state.fetch_sub(CLOSED - LEASE, Ordering::Release);",
        model="recycled",
    ),
    changed(
        "`publish` retires the old slot before it puts the new one up", "publish(",
        "self.pool.latest.store(sequence << INDEX_BITS | index as u64, Ordering::SeqCst);\n"
        "        Published { sequence, retired: self.retire(Some(index)) }",
        "let retired = self.retire(Some(index));\n"
        "        self.pool.latest.store(sequence << INDEX_BITS | index as u64, Ordering::SeqCst);\n"
        "        Published { sequence, retired }",
        model="recycled",
    ),
    changed(
        "`reset` leaves `latest` up", "reset(", "self.pool.latest.store(0, Ordering::Relaxed);", "", model="reset"
    ),
    changed(
        "`retire` does not mark the slot", "retire(", "slot.state.fetch_or(RETIRED, Ordering::Release);", "",
        model="objects",
    ),
    changed(
        "`retire` gives the lease back before it marks the slot", "retire(",
        "slot.state.fetch_or(RETIRED, Ordering::Release);\n            self.pool.give_back(slot, index, LEASE);",
        "self.pool.give_back(slot, index, LEASE);\n            slot.state.fetch_or(RETIRED, Ordering::Release);",
        model="one_off",
    ),
    changed(
        "`abandon` opens by a store", "abandon(",
        "slot.state.fetch_and(!CLOSED, Ordering::Release)", "slot.state.store(0, Ordering::Release)",
        model="abandoned",
    ),
    changed(
        "The writer ends without taking its publication down", "drop(&mut self) {\n        // A view may",
        "self.reset().leave(&self.pool);", "", model="objects",
    ),
    # Waiting
    changed(
        "A waiter counts itself after it looked", "wait<",
        "self.waiters.fetch_add(1, Ordering::SeqCst);\n",
        "if let Some(found) = look() {\n            self.waiters.fetch_add(1, Ordering::SeqCst);\n"
        "            self.waiters.fetch_sub(1, Ordering::Relaxed);\n            return Some(found);\n        }\n"
        "        let mut looked = true;\n        let mut look = || if std::mem::take(&mut looked) { None } else { look() };\n"
        "        self.waiters.fetch_add(1, Ordering::SeqCst);\n",
        model="waiting",
    ),
    changed("A waiter does not count itself", "wait<", "fetch_add(1,", "fetch_add(0,", model="waiting"),
    changed("A waiter is counted for ever", "wait<", "fetch_sub(1,", "fetch_sub(0,", model="waiting"),
    changed(
        "`ring` does not take the mutex", "ring_for_somebody(",
        "drop(self.asleep.lock().unwrap_or_else(PoisonError::into_inner));", "", model="waiting",
    ),
    changed("`ring` wakes one waiter only", "ring_for_somebody(", "notify_all", "notify_one", model="two_waiters"),
    changed("A waiter does not look again", "wait<", "let found = loop {", "let mut asleep_once = false;\n"
        "        let found = loop {\n            if std::mem::replace(&mut asleep_once, true) {\n"
        "                break None;\n            }", model="two_waiters"),
]  # fmt: skip


def run(command: list[str | Path], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=COPY, text=True, capture_output=True, check=False, **more)  # type: ignore[call-overload, no-any-return]


def build() -> Path:
    environment = {
        **os.environ,
        "RUSTFLAGS": "--cfg loom",
        "RUST_BACKTRACE": "0",
        "CARGO_TARGET_DIR": str(COPY / "target"),
        "CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS": "true",
        "CARGO_PROFILE_RELEASE_DEBUG": "false",
    }
    command = ["cargo", "test", "--release", "--locked", "--test", "loom_publish", "--no-run"]
    result = run([*command], env=environment)
    executable = re.search(r"\((.*loom_publish-[^)]*)\)", result.stderr)
    if result.returncode or executable is None:
        raise SystemExit(f"does not build:\n{result.stderr}")
    return COPY / executable[1]


def fails(executable: Path, model: str) -> str:
    """What the model says of it, or nothing if it holds."""
    try:
        result = run([executable, "--exact", model, "--nocapture"], timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return ""
    if result.returncode == 0:
        return ""
    said = re.search(r"panicked at [^\n]*\n([^\n]+)", result.stderr + result.stdout)
    return said[1].strip() if said else "the process ended"


def main() -> int:
    words = sys.argv[1:]
    shutil.rmtree(COPY / "src", ignore_errors=True)
    shutil.rmtree(COPY / "tests", ignore_errors=True)
    COPY.mkdir(parents=True, exist_ok=True)
    for name in ("Cargo.toml", "Cargo.lock", "README.md"):
        shutil.copy(ROOT / name, COPY)
    # With new times, or cargo may take what it built of the last mutation for built of these.
    shutil.copytree(ROOT / "src", COPY / "src", copy_function=shutil.copyfile)
    shutil.copytree(ROOT / "tests/model", COPY / "tests/model", copy_function=shutil.copyfile)
    shutil.copyfile(ROOT / "tests/loom_publish.rs", COPY / "tests/loom_publish.rs")
    executable = build()
    models = re.findall(r"^(\w+): test$", run([executable, "--list"]).stdout, re.MULTILINE)
    for model in models:
        if said := fails(executable, model):
            raise SystemExit(f"{model} fails without any mutation: {said}")

    mutated = [m.apply((ROOT / m.file).read_text(encoding="utf-8")) for m in MUTATIONS]
    wrong = 0
    print("| mutation | noticed by | as |", "| --- | --- | --- |", sep="\n", flush=True)
    for mutation, changed_source in zip(MUTATIONS, mutated, strict=True):
        if words and not any(word in mutation.name for word in words):
            continue
        begin = time.monotonic()
        source = (ROOT / mutation.file).read_text(encoding="utf-8")
        (COPY / mutation.file).write_text(changed_source, encoding="utf-8")
        try:
            executable = build()
            first = [mutation.model] if mutation.model else []
            for model in first + [model for model in models if model not in first]:
                if said := fails(executable, model):
                    break
            else:
                model, said = "", mutation.harmless or "**nothing**"
        finally:
            (COPY / mutation.file).write_text(source, encoding="utf-8")
        wrong += bool(model) == bool(mutation.harmless)
        noticed = f"`{model}`" if model else "none"
        print(f"| {mutation.name} | {noticed} | {said} |", flush=True)
        print(f"{mutation.name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if wrong:
        print(f"{wrong} mutations are not as expected", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
