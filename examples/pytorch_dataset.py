"""Load event recordings as PyTorch batches: python pytorch_dataset.py A.raw [B.raw ...] [--workers N]

Each item is one frame of a fixed number of events. PyTorch is installed by you.
"""

import argparse

import torch

import frames2py
from frames2py.adapters import evt


class RecordingFrames(torch.utils.data.IterableDataset):
    """One item for every `events_per_frame` events of every recording; the last may hold fewer.

    `make_kernel` is called with no argument for each recording, in the process that reads it:
    `frames2py.Polarity`, or `functools.partial(frames2py.VoxelGrid, bins=5, bin_us=10_000)`.
    `sensor_size` is for recordings that do not tell theirs. `transform` turns the frame's tensor
    into what the model takes.
    """

    def __init__(self, paths, make_kernel, *, events_per_frame, sensor_size=None, transform=None):
        super().__init__()
        self.paths = [str(path) for path in paths]
        self.make_kernel = make_kernel
        self.events_per_frame = events_per_frame
        self.sensor_size = sensor_size
        self.transform = transform

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()  # None when no workers are used
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for recording in range(first, len(self.paths), step):  # workers share out whole recordings
            path = self.paths[recording]
            with evt.open(path, sensor_size=self.sensor_size, batch_size=self.events_per_frame) as reader:
                accumulator = frames2py.Accumulator(reader.sensor_size, self.make_kernel())
                for events in reader:
                    accumulator.reset()
                    accumulator.accumulate(events)
                    if accumulator.watermark is None:  # not one event on the sensor
                        continue
                    frame = torch.from_numpy(accumulator.read())  # read() made a new array: no copy()
                    if self.transform is not None:
                        frame = self.transform(frame)
                    yield {"frame": frame, "recording": recording, "t_us": accumulator.watermark}


def polarity_image(counts):
    """(H, W, 2) uint32 counts to a (2, H, W) float32 image in [0, 1], the busiest pixel 1."""
    image = counts.permute(2, 0, 1).to(torch.float32)
    return image / image.max().clamp(min=1)


def sensor_size(text):
    width, height = text.split("x")
    return int(width), int(height)


def main():
    parser = argparse.ArgumentParser(description="Load event recordings as PyTorch batches.")
    parser.add_argument("recordings", nargs="+", help="EVT 2.0 or 3.0 files of one sensor size")
    parser.add_argument("--sensor", type=sensor_size, metavar="WxH", help="for files without a size")
    parser.add_argument("--workers", type=int, default=0, help="worker processes")
    parser.add_argument("--events", type=int, default=20_000, help="events per frame")
    parser.add_argument("--batch", type=int, default=8, help="frames per batch")
    options = parser.parse_args()

    dataset = RecordingFrames(
        options.recordings,
        frames2py.Polarity,
        events_per_frame=options.events,
        sensor_size=options.sensor,
        transform=polarity_image,
    )
    loader = torch.utils.data.DataLoader(dataset, batch_size=options.batch, num_workers=options.workers)
    frames = [0] * len(options.recordings)
    last = [0] * len(options.recordings)
    for batch in loader:  # "frame" (B, 2, H, W) float32; "recording" and "t_us" (B,) int64
        for recording, t_us in zip(batch["recording"].tolist(), batch["t_us"].tolist(), strict=True):
            frames[recording] += 1
            last[recording] = t_us
    for path, count, t_us in zip(options.recordings, frames, last, strict=True):
        print(f"{path}: {count} frames, the last at {t_us} us")


if __name__ == "__main__":  # worker processes may import this file again
    main()
