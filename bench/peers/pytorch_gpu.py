"""The steps of training of //bench:gpu in PyTorch on a GPU: pytorch_gpu.py eager|compiled.

Prints one JSON object: the median microseconds of a step, of batches of steps that are queued and then waited for. Products are
computed in f32, as ndarc's are. {"skipped": ...} where there is no PyTorch that sees a GPU.
"""

import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    print(json.dumps({"skipped": "PyTorch is not installed for " + sys.executable}))
    sys.exit(0)

import pytorch_gpt
import pytorch_network

SHORTEST_BATCH, REPEATS, WARM_UP = 0.02, 31, 12
TOKENS, LENGTH = 50257, 256


def classify(model, x, labels, **options):
    """A step of a model of digits."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, **options)
    return optimizer, lambda: functional.cross_entropy(model(x), labels)


def mlp(batch):
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    return classify(model, torch.rand(batch, 784), torch.randint(0, 10, (batch,)))


def cnn(batch):
    return classify(pytorch_network.make_cnn(), torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,)), momentum=0.9)


def gpt(batch):
    model = pytorch_gpt.GPT(TOKENS, 1024, 768, 12, 12)
    window = torch.randint(0, TOKENS, (batch, LENGTH + 1))
    ids, targets = window[:, :-1].contiguous(), window[:, 1:].contiguous()
    return torch.optim.AdamW(model.parameters(), fused=True), lambda: model.loss(ids, targets)


def microseconds(optimizer, loss, compiled):
    loss = torch.compile(loss) if compiled else loss

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    def seconds(count):
        begin = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    seconds(WARM_UP)
    count = max(1, int(SHORTEST_BATCH / seconds(3)))
    return statistics.median(seconds(count) for _ in range(REPEATS)) * 1e6


def main():
    compiled = sys.argv[1:] == ["compiled"]
    if not torch.cuda.is_available():
        print(json.dumps({"skipped": "PyTorch %s sees no GPU" % torch.__version__}))
        return
    torch.set_default_device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    name = "compiled" if compiled else "pytorch"
    figures = {"library": "PyTorch %s%s" % (torch.__version__, ", torch.compile" if compiled else "")}
    for key, make, batch in (("mlp_128", mlp, 128), ("mlp_4096", mlp, 4096), ("cnn_128", cnn, 128), ("gpt", gpt, 8)):
        try:
            figures["TG_rival_%s_us_%s" % (name, key)] = round(microseconds(*make(batch), compiled), 2)
        except Exception as error:  # a compiler that is not there must not take the other figures with it
            print("pytorch_gpu.py: %s: %s" % (key, str(error).splitlines()[:1]), file=sys.stderr)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
