"""The embeddings of //bench:minilm in ONNX Runtime: a graph of its own operators for BERT, which its optimizer would find.

Prints one JSON object, as pytorch_minilm.py. {"skipped": ...} where onnxruntime, onnx or the model is not there. With the
argument "check", what its embeddings and those of pytorch_minilm.py differ by.
"""

import json
import os
import sys

try:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(json.dumps({"skipped": "%s is not installed for %s" % (missing.name, sys.executable)}))
    sys.exit(0)

import minilm_files
import numpy

MICROSOFT = "com.microsoft"


class Graph:
    def __init__(self, path):
        self.config, self.weights = minilm_files.load_config(path), minilm_files.load(path)
        self.nodes, self.initializers = [], {}

    def constant(self, name, array):
        self.initializers.setdefault(name, numpy_helper.from_array(numpy.ascontiguousarray(array), name))
        return name

    def weight(self, name):
        return self.constant(name, self.weights[name])

    def add(self, kind, inputs, domain="", **attributes):
        out = "x%d" % len(self.nodes)
        self.nodes.append(helper.make_node(kind, inputs, [out], domain=domain, **attributes))
        return out

    def dense(self, name, x):
        return self.add("MatMul", [x, self.constant(name + ".turned", self.weights[name + ".weight"].T)])

    def skip_norm(self, norm, x, skip, bias):
        inputs = [x, skip, self.weight(norm + ".weight"), self.weight(norm + ".bias"), self.weight(bias)]
        return self.add("SkipLayerNormalization", inputs, MICROSOFT, epsilon=1e-12)

    def layer(self, i, x):
        name = "encoder.layer.%d." % i
        parts = [name + "attention.self.%s." % part for part in ("query", "key", "value")]
        weight = self.constant(name + "qkv", numpy.concatenate([self.weights[part + "weight"] for part in parts]).T)
        bias = self.constant(name + "qkv.bias", numpy.concatenate([self.weights[part + "bias"] for part in parts]))
        seen = self.add("Attention", [x, weight, bias], MICROSOFT, num_heads=self.config["num_attention_heads"])
        mixed = self.dense(name + "attention.output.dense", seen)
        x = self.skip_norm(name + "attention.output.LayerNorm", mixed, x, name + "attention.output.dense.bias")
        wide = self.dense(name + "intermediate.dense", x)
        wide = self.add("BiasGelu", [wide, self.weight(name + "intermediate.dense.bias")], MICROSOFT)
        narrow = self.dense(name + "output.dense", wide)
        return self.skip_norm(name + "output.LayerNorm", narrow, x, name + "output.dense.bias")

    def model(self):
        embeddings = "embeddings.%s_embeddings.weight"
        words = self.add("Gather", [self.weight(embeddings % "word"), "ids"])
        places = self.weights[embeddings % "position"][: minilm_files.LENGTH] + self.weights[embeddings % "token_type"][0]
        x = self.add("Add", [words, self.constant("places", places)])
        norm = [self.weight("embeddings.LayerNorm." + part) for part in ("weight", "bias")]
        x = self.add("LayerNormalization", [x] + norm, axis=-1, epsilon=1e-12)
        for i in range(self.config["num_hidden_layers"]):
            x = self.layer(i, x)
        mean = self.add("ReduceMean", [x, self.constant("axis", numpy.array([1], numpy.int64))], keepdims=0)
        x = self.add("LpNormalization", [mean], axis=-1, p=2)
        ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", minilm_files.LENGTH])
        result = helper.make_tensor_value_info(x, TensorProto.FLOAT, ["n", self.config["hidden_size"]])
        graph = helper.make_graph(self.nodes, "minilm", [ids], [result], list(self.initializers.values()))
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def session(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def main():
    path = minilm_files.folder()
    minilm_files.need(path)
    model = Graph(path).model()
    if sys.argv[1:] == ["check"]:
        import pytorch_minilm
        import torch

        ids = minilm_files.tokens(8)
        ours = session(model, 1).run(None, {"ids": ids})[0]
        theirs = pytorch_minilm.Encoder(path, True).embed(torch.from_numpy(ids)).numpy()
        print(abs(ours - theirs).max())
        return
    figures = {"library": "ONNX Runtime %s" % onnxruntime.__version__}
    for threads, end in ((1, "_one_thread"), (os.cpu_count() or 1, "")):
        run = session(model, threads)
        for count in minilm_files.COUNTS:
            batch = {"ids": minilm_files.tokens(count)}
            us = minilm_files.microseconds(lambda: run.run(None, batch))
            figures["T20_rival_onnxruntime_us_%d%s" % (count, end)] = round(us, 1)
            figures["T20_rival_onnxruntime_per_s_%d%s" % (count, end)] = round(count * 1e6 / us, 2)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
