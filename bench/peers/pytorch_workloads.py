"""The work of //bench:workloads in PyTorch, in turns.

    pytorch_workloads.py NAME STEPS SEED THREADS DATA FOLDER DEVICE

Prints a line {"library": ...}, or {"skipped": ...} where PyTorch is not installed, has no such work or no such device. Then it
reads lines: a number of steps to do, answered by {"seconds", "value" (mean over them), "resident" (bytes), "value_0" ... (of each
of the first steps)}; 0 ends it, answered by {"score", "resident" (at its peak)}, on a GPU with "device" (bytes, likewise). Models,
batches, rates and schedules are those of bench/workloads/NAME.c. First parameters and what the first steps draw are in FOLDER, as
bench/workloads/hand_over.h describes; where FOLDER is empty, and after those steps, PyTorch draws. DEVICE is cpu or cuda. On a GPU
all data are in its memory from the beginning, products are computed in f32, and Adam is the fused one.
"""

import glob
import gzip
import json
import os
import resource
import struct
import sys
import time

FIRST_STEPS = 10  # as in bench/workloads/workload.h
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def say(**figures):
    print(json.dumps(figures), flush=True)


try:
    import numpy
    import torch
    from torch import nn
    from torch.nn import functional

    import minilm_files
    import pytorch_minilm
    import pytorch_threads
    from pytorch_gpt import Transformer
except ImportError:
    say(skipped="PyTorch is not installed for " + sys.executable)
    sys.exit(0)


def read_idx(folder, name, given):
    """The file under its original name, or with .gz behind it."""
    path = os.path.join(folder, name)
    opened = open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz", "rb")
    with opened as file:
        content = file.read()
    ndim = content[3]
    shape = struct.unpack(">%dI" % ndim, content[4 : 4 + 4 * ndim])
    return given.place(numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * ndim).copy().reshape(shape))


def load_digits(data, given):
    """(images, labels) to train on and to test on: [n, 1, 28, 28] from 0 to 1."""
    folder = data or os.path.join(ROOT, "data", "mnist")
    images, labels = read_idx(folder, "t10k-images-idx3-ubyte", given), read_idx(folder, "t10k-labels-idx1-ubyte", given)
    images = images.float().div(255).unsqueeze(1)
    if not data:
        return (images[:8000], labels[:8000].long()), (images[8000:], labels[8000:].long())
    more = read_idx(folder, "train-images-idx3-ubyte", given).float().div(255).unsqueeze(1)
    return (more, read_idx(folder, "train-labels-idx1-ubyte", given).long()), (images, labels.long())


def shuffled(samples, batch):
    """Batches of epoch after epoch, without short ones."""
    images, labels = samples
    while True:
        order = torch.randperm(len(images), device=images.device)
        for begin in range(0, len(images) - batch + 1, batch):
            chosen = order[begin : begin + batch]
            yield images[chosen], labels[chosen]


class Given:
    """What was handed over, and the device that everything is on."""

    def __init__(self, folder, device):
        self.folder, self.device = folder, device
        self.fused = device.type == "cuda"  # of Adam
        self.draws = self.load("drawn")

    def place(self, array):
        """The array's elements on the device: the one way there for what is read from files."""
        return torch.from_numpy(array).to(self.device)

    def load(self, name):
        """Tensors by name; none where nothing was handed over under that one."""
        if not self.folder or not os.path.exists(os.path.join(self.folder, name + ".safetensors")):
            return {}
        return {key: self.place(array) for key, array in minilm_files.load(self.folder, name).items()}

    def fill(self, module, name):
        """The module's first parameters and buffers, all of them, unless PyTorch is to draw its own."""
        tensors = self.load(name)
        if tensors:
            missing, unexpected = module.load_state_dict(tensors, strict=False)
            missing = [key for key in missing if not key.endswith("num_batches_tracked")]
            assert not missing and not unexpected, (missing, unexpected)

    def draw(self, name, index, otherwise):
        """Draw number `index`, or what a function draws."""
        return self.draws[name][index] if self.has(name, index) else otherwise()

    def has(self, name, index):
        return index < len(self.draws.get(name, ()))


class Cnn:
    def __init__(self, steps, data, given):
        self.given, self.steps = given, 0
        train, self.test = load_digits(data, given)
        self.batches = shuffled(train, 64)
        self.model = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, 10),
        )
        given.fill(self.model, "model")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3, fused=given.fused)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)

    def step(self):
        drawn = self.given.has("images", self.steps)
        images, labels = [self.given.draws[name][self.steps] for name in ("images", "labels")] if drawn else next(self.batches)
        self.steps += 1
        loss = functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def score(self):
        images, labels = self.test
        with torch.no_grad():
            return (self.model(images).argmax(1) == labels).float().mean().item()


class WganGp:
    NOISE, WIDTH, BATCH = 32, 16, 32

    def __init__(self, steps, data, given):
        self.given, self.updates, self.steps = given, 0, 0
        self.batches = shuffled(load_digits(data, given)[0], self.BATCH)
        self.generator = nn.Sequential(
            nn.Linear(self.NOISE, 2 * self.WIDTH * 49), nn.Unflatten(1, (2 * self.WIDTH, 7, 7)),
            nn.BatchNorm2d(2 * self.WIDTH), nn.ReLU(),
            nn.ConvTranspose2d(2 * self.WIDTH, self.WIDTH, 4, 2, 1), nn.BatchNorm2d(self.WIDTH), nn.ReLU(),
            nn.ConvTranspose2d(self.WIDTH, 1, 4, 2, 1), nn.Tanh(),
        )
        self.critic = nn.Sequential(
            nn.Conv2d(1, self.WIDTH, 4, 2, 1), nn.SiLU(),
            nn.Conv2d(self.WIDTH, 2 * self.WIDTH, 4, 2, 1), nn.SiLU(),
            nn.Flatten(), nn.Linear(2 * self.WIDTH * 49, 1),
        )
        given.fill(self.generator, "generator")
        given.fill(self.critic, "critic")
        options = {"lr": 1e-3, "betas": (0.5, 0.9), "fused": given.fused}
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), **options)
        self.generator_optimizer = torch.optim.Adam(self.generator.parameters(), **options)

    def noise(self, name, index):
        return self.given.draw(name, index, lambda: torch.randn(self.BATCH, self.NOISE, device=self.given.device))

    def penalty(self, real, fake):
        parts = self.given.draw("parts", self.updates, lambda: torch.rand(self.BATCH, 1, 1, 1, device=self.given.device))
        points = (fake + parts * (real - fake)).requires_grad_()
        # The slope alone, without a cycle: torch.autograd.grad, which its documentation asks for.
        (slope,) = torch.autograd.grad(self.critic(points).sum(), points, create_graph=True)
        return ((slope.flatten(1).square().sum(1) + 1e-12).sqrt() - 1).square().mean()

    def step(self):
        for _ in range(3):
            real = self.given.draw("real", self.updates, lambda: next(self.batches)[0] * 2 - 1)
            with torch.no_grad():
                fake = self.generator(self.noise("noise", self.updates))
            distance = self.critic(real).mean() - self.critic(fake).mean()
            (10 * self.penalty(real, fake) - distance).backward()
            self.critic_optimizer.step()
            self.critic_optimizer.zero_grad(set_to_none=True)
            self.updates += 1
        (-self.critic(self.generator(self.noise("generator_noise", self.steps))).mean()).backward()
        self.steps += 1
        self.generator_optimizer.step()
        self.generator_optimizer.zero_grad(set_to_none=True)
        self.critic_optimizer.zero_grad(set_to_none=True)
        return distance.item()


def load_pages(given):
    pages = b"".join(open(path, "rb").read() for path in sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))))
    return given.place(numpy.frombuffer(pages, numpy.uint8).copy()).long()


class Rnn(nn.Module):
    TRACKS, WINDOW, EMBEDDED, HIDDEN = 16, 64, 32, 128

    def __init__(self, steps, kind, given):
        super().__init__()
        text = load_pages(given)
        length = len(text) // self.TRACKS
        self.tracks = text[: self.TRACKS * length].view(self.TRACKS, length)
        self.position, self.state = 0, None
        self.embedding = nn.Embedding(256, self.EMBEDDED)
        self.net = kind(self.EMBEDDED, self.HIDDEN)
        self.head = nn.Linear(self.HIDDEN, 256)
        given.fill(self, "model")
        self.optimizer = torch.optim.Adam(self.parameters(), lr=5e-3, fused=given.fused)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: 0.1 + 0.45 * (1 + numpy.cos(numpy.pi * min(step / steps, 1)))
        )

    def step(self):
        window = self.tracks[:, self.position : self.position + self.WINDOW + 1].t()
        output, state = self.net(self.embedding(window[:-1]), self.state)
        self.state = tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()
        loss = functional.cross_entropy(self.head(output).flatten(0, 1), window[1:].flatten())
        self.position += self.WINDOW
        if self.position + self.WINDOW >= self.tracks.shape[1]:
            self.position, self.state = 0, None
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def make_conv(inner, outer, kernel, stride):
    return nn.Sequential(nn.Conv2d(inner, outer, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outer))


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.body = nn.Sequential(make_conv(inner, outer, 3, stride), nn.ReLU(), make_conv(outer, outer, 3, 1))
        same = inner == outer and stride == 1
        self.shortcut = nn.Identity() if same else make_conv(inner, outer, 1, stride)

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


class LargeImages:
    BATCH, SIDE, WIDTH, STAGES = 8, 512, 8, 4

    def __init__(self, steps, data, given):
        images, labels = load_digits(data, given)[0]
        self.images, self.labels = images[: self.BATCH], labels[: self.BATCH]
        colours = lambda: torch.rand(self.BATCH, 3, 1, 1, device=given.device)
        self.ground, self.ink = given.draw("ground", 0, colours), given.draw("ink", 0, colours)
        blocks = [Block(self.WIDTH, self.WIDTH, 1)]
        blocks += [Block(self.WIDTH << i, self.WIDTH << i + 1, 2) for i in range(self.STAGES - 1)]
        self.features = nn.Sequential(make_conv(3, self.WIDTH, 5, 2), nn.ReLU(), *blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(self.WIDTH << self.STAGES - 1, 10))
        model = nn.Sequential(self.features, self.head)
        given.fill(model, "model")
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=given.fused)

    def draw_map(self, features, gradient):
        drawn = torch.relu(-(features * gradient.mean((2, 3), keepdim=True)).sum(1))
        self.focus = (drawn.max() - drawn.mean()).item()

    def step(self):
        shapes = functional.interpolate(self.images, size=self.SIDE, mode="bilinear")
        features = self.features(self.ground + shapes * (self.ink - self.ground))
        # The hook has features without a history, so that PyTorch's side keeps nothing.
        seen = features.detach()
        features.register_hook(lambda gradient: self.draw_map(seen, gradient))
        loss = functional.cross_entropy(self.head(features), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


class MiniLm:
    BATCH = 16

    def __init__(self, steps, data, given):
        tokens = given.load("tokens")
        self.ids, self.lengths, self.position = tokens["ids"], tokens["lengths"], 0
        encoders = [pytorch_minilm.Encoder(os.path.join(given.folder, "model"), fused, given.device) for fused in (False, True)]
        batch = self.next_batch()
        times = [minilm_files.microseconds(lambda: wait(encoder.embed(*batch).device)) for encoder in encoders]
        self.encoder, self.position = encoders[times.index(min(times))], 0

    def next_batch(self):
        chosen = torch.arange(self.position, self.position + self.BATCH, device=self.ids.device) % len(self.lengths)
        self.position += self.BATCH
        lengths = self.lengths[chosen]
        return self.ids[chosen, : lengths.max()], lengths

    def step(self):
        embeddings = self.encoder.embed(*self.next_batch())
        return (embeddings[:-1] * embeddings[1:]).sum(1).mean().item()


WORKLOADS = {
    "cnn": Cnn,
    "wgan_gp": WganGp,
    "rnn_lstm": lambda steps, data, given: Rnn(steps, nn.LSTM, given),
    "rnn_gru": lambda steps, data, given: Rnn(steps, nn.GRU, given),
    "transformer": lambda steps, data, given: Transformer(steps, load_pages(given), given),
    "large_images": LargeImages,
    "minilm": MiniLm,
    "serve": lambda steps, data, given: pytorch_threads.Serve(load_digits(data, given)[1], given),
    "pipeline": lambda steps, data, given: pytorch_threads.Pipeline(steps, *load_digits(data, given), given),
}


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def wait(device):
    """Until everything that is queued is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main():
    name, steps, seed, threads, data = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    folder, device = sys.argv[6], torch.device(sys.argv[7])
    if name not in WORKLOADS:
        say(skipped="%s has no %s" % (os.path.basename(__file__), name))
        return
    if device.type == "cuda" and not torch.cuda.is_available():
        say(skipped="PyTorch has no CUDA device")
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    # For parameters alone: a default device would cost every call of the steps something.
    with torch.device(device):
        work, done = WORKLOADS[name](steps, data, Given(folder, device)), 0
    say(library="PyTorch %s" % torch.__version__)
    for line in sys.stdin:
        count = int(line)
        if count == 0:
            score = work.score() if hasattr(work, "score") else None
            peaks = {"resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
            if device.type == "cuda":
                peaks["device"] = torch.cuda.max_memory_allocated(device)
            say(score=score, **peaks)
            return
        begin = time.perf_counter()
        values = [work.step() for _ in range(count)]
        wait(device)
        seconds = time.perf_counter() - begin
        first = {"value_%d" % i: value for i, value in enumerate(values, done) if i < FIRST_STEPS}
        say(seconds=seconds, value=sum(values) / count, resident=resident_bytes(), **first)
        done += count


if __name__ == "__main__":
    main()
