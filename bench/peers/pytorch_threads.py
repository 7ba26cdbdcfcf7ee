"""serve and pipeline of //bench:workloads in PyTorch, as its users write them: threads that share a model, workers of a DataLoader.

PyTorch has no quotas: its side of serve looks at how many digits a request has, and refuses what ours has refused by its memory.
The workers of pipeline are processes, since Python's threads would decode in turns; they decode by Pillow where it is installed,
else they take the pixels as they are, as ours do without libpng. What they draw is their own after the batches handed over.
"""

import io
import os
import threading

import torch
from torch import nn
from torch.nn import functional

try:
    from PIL import Image
except ImportError:
    Image = None


class Serve:
    THREADS, REQUESTS, MOST_DIGITS, TOO_MANY, EXPLAINED, OVERRUNNING = 8, 1000, 8, 1000, 32, 1024

    def __init__(self, test, given):
        torch.set_num_threads(1)  # threads inside of such small calls are in the way of the eight
        images, labels = test
        self.pixels, self.labels = (images.flatten(1) * 255).round().to(torch.uint8), labels
        self.model = nn.Sequential(nn.Linear(784, 128), nn.Tanh(), nn.Linear(128, 10)).requires_grad_(False)
        given.fill(self.model, "model")
        with torch.no_grad():
            self.expected = torch.softmax(self.model(self.scale(self.pixels)), 1)
        self.lock = threading.Lock()
        self.next = self.end = self.digits = self.right = 0
        self.begun, self.done = threading.Barrier(self.THREADS + 1), threading.Barrier(self.THREADS + 1)
        for _ in range(self.THREADS):
            threading.Thread(target=self.serve_rounds, daemon=True).start()

    @staticmethod
    def scale(pixels):
        return pixels.float() * (1 / 255)

    def request(self, number):
        """First digit, how many, and whether they are explained: as request_of() of serve.c."""
        mixed = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
        mixed ^= mixed >> 29
        count = 1 + (mixed >> 8) % self.MOST_DIGITS
        if number % self.OVERRUNNING == self.OVERRUNNING - 1:
            count = self.TOO_MANY
        return (mixed >> 16) % (len(self.labels) - count + 1), count, mixed % self.EXPLAINED == 0

    def explain(self, pixels):
        images = self.scale(pixels).requires_grad_()
        best = self.model(images).amax(1).sum()
        (slope,) = torch.autograd.grad(best, images, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.square().sum(), images)
        return curvature.abs().sum().item()

    def respond(self, number):
        """How many digits the request has, and how many are right; none when it is refused."""
        first, count, explained = self.request(number)
        if count > self.MOST_DIGITS:
            return 0, 0
        pixels, chosen = self.pixels[first : first + count], slice(first, first + count)
        with torch.no_grad():
            answers = torch.softmax(self.model(self.scale(pixels)), 1)
        assert (answers - self.expected[chosen]).abs().max().item() < 1e-4
        right = (answers.argmax(1) == self.labels[chosen]).sum().item()
        if explained:
            self.explain(pixels)
        return count, right

    def serve_rounds(self):
        while True:
            self.begun.wait()
            digits = right = 0
            while True:
                with self.lock:
                    number, self.next = self.next, self.next + 1
                if number >= self.end:
                    break
                more = self.respond(number)
                digits, right = digits + more[0], right + more[1]
            with self.lock:
                self.digits, self.right = self.digits + digits, self.right + right
            self.done.wait()

    def step(self):
        self.next, self.end = self.end, self.end + self.REQUESTS
        self.begun.wait()
        self.done.wait()
        return self.score()

    def score(self):
        return self.right / self.digits


def encode(pixels):
    """A digit [28, 28] as a PNG file; the pixels themselves where there is no Pillow."""
    if not Image:
        return pixels
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "PNG")
    return file.getvalue()


class Distorted(torch.utils.data.Dataset):
    """Sample after sample of files, decoded and distorted."""

    SHIFT, NOISE = 2, 0.1

    def __init__(self, files, labels, samples):
        self.files, self.labels, self.samples = files, labels, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        number = int(torch.randint(len(self.files), ()))
        file = self.files[number]
        pixels = torch.frombuffer(bytearray(Image.open(io.BytesIO(file)).tobytes()), dtype=torch.uint8) if Image else file
        image = pixels.view(28, 28).float() * (1 / 255)
        down, right = torch.randint(-self.SHIFT, self.SHIFT + 1, (2,)).tolist()
        moved = functional.pad(image, (right, -right, down, -down))
        noisy = moved * (torch.rand(()) + 0.5) + torch.randn(28, 28) * self.NOISE
        return noisy.clip(0, 1).unsqueeze(0), self.labels[number], number


class Pipeline:
    PRODUCERS, FILES, BATCH = 3, 4000, 32

    def __init__(self, steps, train, test, given):
        torch.set_num_threads(1)  # workers have the cores
        workers = min(self.PRODUCERS, os.cpu_count() or 1)  # more are slower
        self.given, self.steps, self.test = given, 0, test
        files = [encode((image[0] * 255).round().to(torch.uint8).cpu()) for image in train[0][: self.FILES]]
        # As ours has batches ready ahead: two for each worker.
        samples = Distorted(files, train[1][: self.FILES].cpu(), steps * self.BATCH)
        with torch.device("cpu"):
            self.batches = iter(torch.utils.data.DataLoader(samples, self.BATCH, num_workers=workers, prefetch_factor=2))
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
        given.fill(self.model, "model")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3, fused=given.fused)

    def step(self):
        images, labels, numbers = next(self.batches)
        if self.given.has("images", self.steps):
            images, labels = self.given.draws["images"][self.steps], self.given.draws["labels"][self.steps]
        images, labels = images.to(self.given.device), labels.to(self.given.device)
        self.steps += 1
        logits = self.model(images)
        loss = functional.cross_entropy(logits, labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        with torch.no_grad():
            self.hardest = numbers[functional.log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).argmin().item()].item()
        return value

    def score(self):
        images, labels = self.test
        with torch.no_grad():
            return (self.model(images).argmax(1) == labels).float().mean().item()
