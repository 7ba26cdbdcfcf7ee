"""trainings.py COUNT SEED: random nets, trained a few steps by random optimizers, in ndarc and in PyTorch.

Nets are of rows, of images or of sequences; they begin with the same parameters on both sides. Steps have one batch or two, a norm or
values that are clipped, a schedule, averages, a second group of parameters, parameters that stay; between two steps everything may be
saved, and go on in a net that was made anew. At the end losses, parameters, buffers and averages must agree, in f64.
"""

import math
import os
import sys
import tempfile
import numpy as np
import torch
from torch import nn
import ndarc
import operands
from operands import call, options

STEPS = 6


def tensor_of(array):
    return operands.from_numpy(array)


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight, self.size = nn.Parameter(torch.ones(size)), size

    def forward(self, x):
        return nn.functional.rms_norm(x, [self.size], self.weight, 1e-5)


class First(nn.Module):
    """The output of a recurrent net or of attention."""

    def __init__(self, inside):
        super().__init__()
        object.__setattr__(self, "inside", inside)
        self.held = nn.ModuleList([inside])

    def forward(self, x):
        return (self.inside(x, x, x, need_weights=False) if isinstance(self.inside, nn.MultiheadAttention) else self.inside(x))[0]


FUNCTIONS = {"nd_relu_module": nn.ReLU, "nd_tanh_module": nn.Tanh, "nd_gelu_module": nn.GELU}


class Net:
    """The same layers on both sides; made again by the same random numbers."""

    def __init__(self, random):
        self.random, self.ours, self.theirs, self.text = random, [], [], []
        getattr(self, str(random.choice(["rows", "images", "sequences"])))()
        self.module = call("nd_sequential", self.ours)
        call("nd_module_cast", self.module, "float64")
        self.reference = nn.Sequential(*self.theirs).double()
        self.copy_parameters()

    def below(self, n):
        return int(self.random.integers(n))

    def layer(self, name, arguments, theirs):
        self.text.append(f"{name}{tuple(arguments)}")
        self.ours.append(call(name, *arguments))
        self.theirs.append(theirs)

    def activation(self):
        """Not a corner behind a norm: of equal numbers ndarc's is 0, and PyTorch's a rounding on either side of it."""
        smooth = list(FUNCTIONS)[1:]
        name = str(self.random.choice(smooth if "norm" in "".join(self.text) else list(FUNCTIONS)))
        self.layer(name, [], FUNCTIONS[name]())

    def linear(self, width, out):
        bias = bool(self.below(4))
        self.layer("nd_linear_module", [self.below(1000), width, out, bias], nn.Linear(width, out, bias))
        return out

    def rows(self):
        width = 1 + self.below(6)
        self.shape = [2 + self.below(5), width]
        for _ in range(1 + self.below(3)):
            width = self.linear(width, 2 + self.below(6))
            kind = self.below(5)
            if kind == 0:
                self.layer("nd_layer_norm_module", [1e-5, [width]], nn.LayerNorm(width))
            elif kind == 1:
                self.layer("nd_rms_norm_module", [1e-5, [width]], RMSNorm(width))
            elif kind == 2:
                self.layer("nd_batch_norm_module", [width, None], nn.BatchNorm1d(width))
            self.activation()
        self.linear(width, 1 + self.below(4))

    def images(self):
        channels, size = 1 + self.below(3), 6 + self.below(4)
        self.shape = [2 + self.below(3), channels, size, size]
        for _ in range(1 + self.below(2)):
            out, kernel, padding, stride = 2 * (1 + self.below(2)), 1 + self.below(3), self.below(2), 1 + self.below(2)
            bias, turned = bool(self.below(2)), self.below(4) == 0
            if size + 2 * padding < kernel or (turned and (size - 1) * stride - 2 * padding + kernel < 1):
                break
            given = options("conv_transpose2d" if turned else "conv2d", stride=[stride] * 2, padding=[padding] * 2)
            make = nn.ConvTranspose2d if turned else nn.Conv2d
            self.layer(f"nd_conv{'_transpose' if turned else ''}2d_module", [self.below(1000), channels, out, kernel, kernel, bias, given],
                       make(channels, out, kernel, stride, padding, bias=bias))  # fmt: skip
            size = (size - 1) * stride - 2 * padding + kernel if turned else (size + 2 * padding - kernel) // stride + 1
            channels, kind = out, self.below(5)
            if kind == 0:
                self.layer("nd_batch_norm_module", [channels, options("batch_norm", momentum=0.3)], nn.BatchNorm2d(channels, momentum=0.3))
            elif kind == 1 and size > 1:
                self.layer("nd_group_norm_module", [2, channels, 1e-5], nn.GroupNorm(2, channels))
            elif kind == 2 and size > 1:
                self.layer("nd_instance_norm_module", [channels, None], nn.InstanceNorm2d(channels, affine=True))
            self.activation()
            if size >= 4 and self.below(2):
                largest = bool(self.below(2))
                name = "max" if largest else "avg"
                given = options(f"{name}_pool2d", kernel=[2, 2], stride=[2, 2])
                self.layer(f"nd_{name}_pool2d_module", [given], (nn.MaxPool2d if largest else nn.AvgPool2d)(2, 2))
                size //= 2
        self.layer("nd_flatten_module", [], nn.Flatten())
        self.linear(channels * size * size, 1 + self.below(4))

    def sequences(self):
        width, attends = 2 * (1 + self.below(3)), self.below(3) == 0
        self.shape = [1 + self.below(5), 1 + self.below(4), width]
        if attends:
            bias = bool(self.below(2))
            self.layer("nd_attention_module", [self.below(1000), width, 2, bias, None],
                       First(nn.MultiheadAttention(width, 2, bias=bias, batch_first=True)))  # fmt: skip
        else:
            size, bias, layers, both = 1 + self.below(5), bool(self.below(4)), 1 + self.below(2), self.below(3) == 0
            kind = str(self.random.choice(["rnn", "lstm", "gru"]))
            self.layer(f"nd_{kind}_module", [self.below(1000), width, size, bias, options("recurrent", layers=layers, bidirectional=both)],
                       First(getattr(nn, kind.upper())(width, size, layers, bias=bias, bidirectional=both)))  # fmt: skip
            width = size * (2 if both else 1)
        if self.below(2):
            self.layer("nd_layer_norm_module", [1e-5, [width]], nn.LayerNorm(width))
        self.linear(width, 1 + self.below(3))

    def named(self, what):
        """Of the whole module: [(full name, tensor)]."""
        count = call(f"nd_module_get_{what}_count", self.module)
        found = []
        for i in range(count):
            tensor, name = call(f"nd_module_get_{what}_at", self.module, i)
            found.append((name, tensor))
        return found

    def theirs_of(self, name):
        """PyTorch's tensor of the same name."""
        place, _, rest = name.partition(".")
        layer = self.theirs[int(place)]
        layer = layer.inside if isinstance(layer, First) else layer
        for part in rest.split("."):
            layer = getattr(layer, part)
        return layer

    def copy_parameters(self):
        with torch.no_grad():
            for name, ours in self.named("parameter"):
                theirs = self.theirs_of(name)
                assert tuple(theirs.shape) == ours.shape, f"{name}: shape {ours.shape}, PyTorch {tuple(theirs.shape)}"
                theirs.copy_(torch.tensor(operands.array_of(ours)))


OPTIMIZERS = {
    "sgd": lambda p, o: torch.optim.SGD(p, lr=o["rate"], momentum=o["momentum"], weight_decay=o["weight_decay"], nesterov=o["nesterov"]),
    "adam": lambda p, o: torch.optim.Adam(p, lr=o["rate"], betas=(o["beta1"], o["beta2"]), eps=o["eps"], weight_decay=o["weight_decay"]),
    "adamw": lambda p, o: torch.optim.AdamW(p, lr=o["rate"], betas=(o["beta1"], o["beta2"]), eps=o["eps"], weight_decay=o["weight_decay"]),
    "rmsprop": lambda p, o: torch.optim.RMSprop(p, lr=o["rate"], alpha=o["alpha"], eps=o["eps"], momentum=o["momentum"],
                                                weight_decay=o["weight_decay"], centered=o["centered"]),  # fmt: skip
    "adagrad": lambda p, o: torch.optim.Adagrad(p, lr=o["rate"], lr_decay=o["rate_decay"], weight_decay=o["weight_decay"],
                                                initial_accumulator_value=o["initial"], eps=o["eps"]),  # fmt: skip
}


class Training:
    def __init__(self, random):
        self.random = random
        seed = int(random.integers(2**31))
        self.remake = lambda: Net(np.random.default_rng(seed))
        self.net = self.remake()
        self.text = self.net.text
        self.choose()
        self.optimizer, self.schedule, self.average = self.make_ours(self.net)
        self.make_theirs()

    def below(self, n):
        return int(self.random.integers(n))

    def some(self, value):
        return value if self.below(2) else 0.0

    def choose(self):
        # A small epsilon makes steps of gradients that are rounding alone, as that of a bias before a norm.
        uniform, names = self.random.uniform, [name for name, _ in self.net.named("parameter")]
        self.kind = str(self.random.choice(list(OPTIMIZERS)))
        momentum = self.some(uniform(0.1, 0.95))
        self.options = dict(rate=uniform(1e-3, 0.05), weight_decay=self.some(uniform(0, 0.1)), momentum=momentum, nesterov=momentum > 0 and bool(self.below(2)),
                            beta1=uniform(0.5, 0.95), beta2=uniform(0.9, 0.999), eps=10.0 ** -(1 + self.below(3)), alpha=uniform(0.5, 0.99), centered=bool(self.below(2)),
                            rate_decay=self.some(uniform(0, 0.5)), initial=self.some(uniform(0, 1)))  # fmt: skip
        self.still = {name for name in names if self.below(8) == 0 and len(names) > 1}
        moving = [name for name in names if name not in self.still]
        self.group = [name for name in moving if self.below(2)] if self.below(3) == 0 and len(moving) > 1 else []
        self.group_rate = uniform(1e-3, 0.05)
        self.schedule_kind = self.below(6)
        self.clip, self.limit = self.below(4), uniform(0.05, 2)
        self.decay = uniform(0.5, 0.99)
        self.text += [f"{self.kind} {self.options}", f"still {self.still}, group {self.group}, schedule {self.schedule_kind}, clip {self.clip} {self.limit}"]

    def make_ours(self, net):
        parameters = dict(net.named("parameter"))
        for name in self.still:
            parameters[name].requires_grad = False
        fields = [field.name for field in operands.headers.structs[f"nd_{'adam' if self.kind == 'adamw' else self.kind}_options"]]
        given = ndarc.new_struct(f"nd_{'adam' if self.kind == 'adamw' else self.kind}_options", **{k: v for k, v in self.options.items() if k in fields})
        optimizer = call(f"nd_{self.kind}", net.module, given)
        if self.group:
            group = call("nd_optimizer_add_group", optimizer, [parameters[name] for name in self.group])
            call("nd_optimizer_set_option", optimizer, group, ndarc.OPTIMIZER_RATE, self.group_rate)
        schedule = [
            lambda: None,
            lambda: call("nd_step_schedule", 2, 0.5),
            lambda: call("nd_multi_step_schedule", 0.3, [1, 4]),
            lambda: call("nd_exponential_schedule", 0.8),
            lambda: call("nd_linear_schedule", 0.1, 1.0, 4),
            lambda: call("nd_cosine_schedule", 0.0, STEPS),
        ][self.schedule_kind]()
        if schedule is not None:
            call("nd_schedule_start", schedule, optimizer)
        return optimizer, schedule, call("nd_ema_new", net.module, self.decay)

    def make_theirs(self):
        parameters = {name: self.net.theirs_of(name) for name, _ in self.net.named("parameter")}
        for name in self.still:
            parameters[name].requires_grad_(False)
        self.parameters = parameters
        groups = [{"params": [p for name, p in parameters.items() if name not in self.group]}]
        if self.group:
            groups.append({"params": [parameters[name] for name in self.group], "lr": self.group_rate})
        self.theirs = OPTIMIZERS[self.kind](groups, self.options)
        schedules = torch.optim.lr_scheduler
        self.their_schedule = [
            lambda o: None,
            lambda o: schedules.StepLR(o, 2, 0.5),
            lambda o: schedules.MultiStepLR(o, [1, 4], 0.3),
            lambda o: schedules.ExponentialLR(o, 0.8),
            lambda o: schedules.LinearLR(o, 0.1, 1.0, 4),
            lambda o: schedules.LambdaLR(o, lambda step: (1 + math.cos(math.pi * min(step, STEPS) / STEPS)) / 2),
        ][self.schedule_kind](self.theirs)
        self.averages = {name: p.detach().clone() for name, p in parameters.items()}

    def forward(self, x):
        if self.below(4) == 0 and x.shape[0]:
            return call("nd_checkpoint_module", self.net.module, x)
        return call("nd_module_forward", self.net.module, x)

    def batch(self):
        """Forward and backward of both. Returns the losses."""
        x = self.random.standard_normal(self.net.shape)
        y, other = self.forward(tensor_of(x)), self.net.reference(torch.tensor(x))
        target = self.random.standard_normal(tuple(other.shape))
        if self.below(2) and other.dim() == 2 and other.shape[1] > 1:
            labels = self.random.integers(0, other.shape[1], other.shape[0])
            loss, their_loss = call("nd_cross_entropy", y, tensor_of(labels)), nn.functional.cross_entropy(other, torch.tensor(labels))
        else:
            loss, their_loss = call("nd_mse_loss", y, tensor_of(target)), nn.functional.mse_loss(other, torch.tensor(target))
        if loss.requires_grad:
            call("nd_backward", loss)
            their_loss.backward()
        return loss.item(), their_loss.item()

    def step(self):
        for _ in range(1 + self.below(2)):
            ours, theirs = self.batch()
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-10, err_msg="loss")
        clipped = [p for p in self.parameters.values() if p.grad is not None]
        if self.clip == 1:
            norm = call("nd_clip_grad_norm", self.net.module, self.limit)
            theirs = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in clipped])) if clipped else torch.zeros(())
            np.testing.assert_allclose(norm, theirs.item(), rtol=1e-7, atol=1e-12, err_msg="norm")
            if theirs > self.limit:  # PyTorch's own divides by the norm and 1e-6
                for p in clipped:
                    p.grad *= self.limit / theirs
        elif self.clip == 2:
            call("nd_clip_grad_value", self.net.module, self.limit)
            if clipped:
                nn.utils.clip_grad_value_(clipped, self.limit)
        call("nd_optimizer_step", self.optimizer)
        self.theirs.step()
        if self.schedule is not None:
            call("nd_schedule_step", self.schedule)
            self.their_schedule.step()
        call("nd_optimizer_zero_grad", self.optimizer)
        self.theirs.zero_grad()
        call("nd_ema_update", self.average)
        for name, p in self.parameters.items():
            self.averages[name] += (1 - self.decay) * (p.detach() - self.averages[name])

    def state_of(self, net, optimizer, schedule, average):
        state = call("nd_state_new")
        call("nd_state_add_module", state, "net", net.module)
        call("nd_state_add_optimizer", state, "optimizer", optimizer)
        call("nd_state_add_ema", state, "average", average)
        if schedule is not None:
            call("nd_state_add_schedule", state, "schedule", schedule)
        return state

    def go_on_anew(self):
        """Everything through a file into a net that was made anew."""
        self.text.append("saved and loaded")
        net = self.remake()
        optimizer, schedule, average = self.make_ours(net)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state")
            call("nd_save_state", self.state_of(self.net, self.optimizer, self.schedule, self.average), path)
            call("nd_load_state", self.state_of(net, optimizer, schedule, average), path)
        net.reference, net.theirs = self.net.reference, self.net.theirs
        self.net, self.optimizer, self.schedule, self.average = net, optimizer, schedule, average

    def run(self):
        for _ in range(STEPS):
            self.step()
            if self.below(6) == 0:
                self.go_on_anew()
            if self.below(6) == 0:
                self.evaluate()
        for what in ("parameter", "buffer"):
            for name, ours in self.net.named(what):
                self.same(ours, self.net.theirs_of(name), name)
        for name, average in self.averages.items():
            self.same(call("nd_ema_get_average", self.average, name), average, f"average of {name}")

    def evaluate(self):
        x = self.random.standard_normal(self.net.shape)
        call("nd_module_set_training", self.net.module, False)
        self.net.reference.eval()
        with operands.no_grad(), torch.no_grad():
            self.same(call("nd_module_forward", self.net.module, tensor_of(x)), self.net.reference(torch.tensor(x)), "in evaluation")
        call("nd_module_set_training", self.net.module, True)
        self.net.reference.train()

    @staticmethod
    def same(ours, theirs, what):
        np.testing.assert_allclose(operands.array_of(ours), theirs.detach().numpy(), rtol=1e-6, atol=1e-9, err_msg=what)


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    differences = 0
    for number in range(count):
        training, text = None, []
        try:
            training = Training(np.random.default_rng([seed, number]))
            text = training.text
            training.run()
        except (AssertionError, operands.Error) as error:
            differences += 1
            if differences <= int(os.environ.get("ND_REFERENCE_SHOW", "3")):
                print(f"training {number} of seed {seed}:", *text, f"{type(error).__name__}: {error}", sep="\n    ")
        del training
        if operands.objects_alive():
            differences += 1
            print(f"training {number} of seed {seed}: {operands.objects_alive()} objects are left", *text, sep="\n    ")
            break
    print(f"{count} trainings, {differences} differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
