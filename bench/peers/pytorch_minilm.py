"""The embeddings of //bench:minilm in PyTorch: BERT's encoder written by hand, of the same file.

Prints one JSON object: the median microseconds of a batch of 1, 8 and 32 sentences of 64 tokens, on one thread and on as
many as there are cores. {"skipped": ...} where PyTorch or the model is not there. tests/reference/minilm.py uses the model.
"""

import json
import os
import sys

try:
    import torch
    from torch.nn import functional
except ImportError:
    print(json.dumps({"skipped": "PyTorch is not installed for " + sys.executable}))
    sys.exit(0)

import minilm_files


class Encoder:
    """fused: queries, keys and values by one product, as ours has them; else by three. The weights are on the device."""

    def __init__(self, path, fused, device="cpu"):
        config = minilm_files.load_config(path)
        self.heads, self.layers, self.fused = config["num_attention_heads"], config["num_hidden_layers"], fused
        self.weights = {name: torch.from_numpy(array).to(device) for name, array in minilm_files.load(path).items()}
        for i in range(self.layers):
            for kind in ("weight", "bias"):
                parts = [self.weights["encoder.layer.%d.attention.self.%s.%s" % (i, part, kind)] for part in ("query", "key", "value")]
                self.weights["encoder.layer.%d.attention.self.all.%s" % (i, kind)] = torch.cat(parts)

    def linear(self, name, x):
        return functional.linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def norm(self, name, x):
        return functional.layer_norm(x, x.shape[-1:], self.weights[name + ".weight"], self.weights[name + ".bias"], 1e-12)

    def attend(self, name, x, mask):
        n, t, width = x.shape
        if self.fused:
            parts = self.linear(name + ".all", x).view(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            parts = [self.linear("%s.%s" % (name, part), x).view(n, t, self.heads, -1).transpose(1, 2) for part in ("query", "key", "value")]
        seen = functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        return seen.transpose(1, 2).reshape(n, t, width)

    @torch.inference_mode()
    def embed(self, ids, lengths=None):
        """ids: [n, t]; lengths: [n], None where every token counts. Both are where the weights are."""
        t = ids.shape[1]
        words = functional.embedding(ids, self.weights["embeddings.word_embeddings.weight"])
        places = self.weights["embeddings.position_embeddings.weight"][:t] + self.weights["embeddings.token_type_embeddings.weight"][0]
        x = self.norm("embeddings.LayerNorm", words + places)
        counted = None if lengths is None else torch.arange(t, device=ids.device) < lengths[:, None]
        mask = None if lengths is None else counted[:, None, None, :]
        for i in range(self.layers):
            layer = "encoder.layer.%d." % i
            mixed = self.linear(layer + "attention.output.dense", self.attend(layer + "attention.self", x, mask))
            x = self.norm(layer + "attention.output.LayerNorm", mixed + x)
            wide = functional.gelu(self.linear(layer + "intermediate.dense", x))
            x = self.norm(layer + "output.LayerNorm", self.linear(layer + "output.dense", wide) + x)
        mean = x.mean(1) if counted is None else (x * counted[:, :, None]).sum(1) / lengths[:, None]
        return functional.normalize(mean)


def main():
    path = minilm_files.folder()
    minilm_files.need(path)
    figures = {"library": "PyTorch %s" % torch.__version__}
    encoders = [Encoder(path, fused) for fused in (False, True)]
    for threads, end in ((1, "_one_thread"), (os.cpu_count() or 1, "")):
        torch.set_num_threads(threads)
        for count in minilm_files.COUNTS:
            ids = torch.from_numpy(minilm_files.tokens(count))
            best = min(minilm_files.microseconds(lambda: encoder.embed(ids)) for encoder in encoders)
            figures["T20_rival_pytorch_us_%d%s" % (count, end)] = round(best, 1)
            figures["T20_rival_pytorch_per_s_%d%s" % (count, end)] = round(count * 1e6 / best, 2)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
