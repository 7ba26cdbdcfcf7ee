"""files.py COUNT SEED: files that ndarc writes, read by the packages whose formats they are, and the other way round.

Random arrays of every dtype, shape and layout. Bytes must agree, and where NumPy's writer says what a file looks like, the
whole file.
"""

import ctypes
import io
import json
import os
import sys
import tempfile
import zipfile
import numpy as np
import ndarc as nd

try:
    import safetensors.numpy
except ImportError:
    safetensors = None
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
try:
    import gguf
except ImportError:
    gguf = None
try:
    from PIL import Image, ImageOps
except ImportError:
    Image = None

NUMPY_DTYPES = [name for name in nd.DTYPES if name != "bfloat16"]
COMPLEX_DTYPES = ["complex64", "complex128"]


def name_of(x):
    text = ctypes.create_string_buffer(200)
    return nd.get_name(x, text, len(text))


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def pairs_of(array):
    """What stands for complex numbers: real and imaginary parts along a last axis. Other arrays as they are."""
    if array.dtype.kind != "c":
        return array
    parts = array.dtype.type(0).real.dtype
    return np.frombuffer(array.tobytes(), parts).reshape(array.shape + (2,))


class Files:
    def __init__(self, seed, folder):
        self.random = np.random.default_rng(seed)
        self.path = os.path.join(folder, "file")

    def below(self, n):
        return int(self.random.integers(n))

    def array(self, dtypes=NUMPY_DTYPES, most=40):
        """Random bits, also those of NaN; sometimes large enough to be mapped."""
        dtype = np.dtype(dtypes[self.below(len(dtypes))])
        shape = [self.below(5) for _ in range(self.below(6))]
        if self.below(4) == 0:
            shape = [self.below(most) + 1, self.below(most) + 1, self.below(12) + 1]
        bits = self.random.integers(0, 256, int(np.prod(shape)) * dtype.itemsize, dtype=np.uint8)
        return (bits % 2 if dtype == np.bool_ else bits).view(dtype).reshape(shape)

    def laid_out(self, array):
        """The same numbers in another order of axes or bytes, or in steps."""
        how = self.below(5)
        if array.ndim == 0:  # asfortranarray makes an axis
            how = 1
        if how == 0:
            return np.asfortranarray(array)
        if how == 1:
            return array.astype(array.dtype.newbyteorder(">"))
        if how == 2:
            return np.repeat(array, 2, axis=0)[::2]
        if how == 3:
            return np.asfortranarray(array.astype(array.dtype.newbyteorder(">")))
        return array

    def tensor(self, array):
        """The array as a tensor, in row-major order or a transposed view."""
        x = nd.tensor(np.array(array, order="C"))
        if array.ndim > 1 and self.below(2):
            turned = nd.tensor(np.array(np.swapaxes(array, 0, -1), order="C"))
            return nd.transpose(turned, 0, array.ndim - 1)
        return x

    def shards_of_safetensors(self):
        """A model in several files, as the package writes them, read mapped or not."""
        arrays = {name: np.ascontiguousarray(self.array()) for name in self.names(6)}
        shards, weight_map = {}, {}
        for name, array in arrays.items():
            shard = f"file-{self.below(3)}.safetensors"
            shards.setdefault(shard, {})[name] = array
            weight_map[name] = shard
        for shard, tensors in shards.items():
            safetensors.numpy.save_file(tensors, os.path.join(os.path.dirname(self.path), shard), {"format": "pt"})
        with open(self.path, "w") as file:
            json.dump({"metadata": {"total_size": 1e9}, "weight_map": weight_map}, file, indent=2)
        read = {name_of(x): x.numpy() for x in nd.load_safetensors_index(self.path, mapped=bool(self.below(2)))}
        assert list(read) == list(weight_map)
        assert all(same(read[name], arrays[name]) for name in arrays)

    def float8_of_safetensors(self):
        """Floats of eight bits beside the package that NumPy has them from."""
        kind = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"][self.below(5)]
        shape = [self.below(5) for _ in range(self.below(4))]
        array = np.array([self.below(256) for _ in range(int(np.prod(shape)))], np.uint8).reshape(shape).view(getattr(ml_dtypes, kind))
        safetensors.numpy.save_file({"x": array}, self.path)
        (read,) = nd.load_safetensors(self.path)
        expected = array.astype(np.float32 if "e8m0" in kind else np.float16)
        read = read.numpy()
        assert read.dtype == expected.dtype and read.shape == expected.shape, kind
        assert (np.isnan(read) == np.isnan(expected)).all(), kind
        assert same(np.where(np.isnan(read), 0, read), np.where(np.isnan(expected), 0, expected)), kind

    def float4_of_safetensors(self):
        """Two in a byte, which NumPy has one by one; the package writes what PyTorch calls them."""
        shape = [self.below(5) for _ in range(self.below(4))] + [2 * self.below(5)]
        bits = np.array([self.below(16) for _ in range(int(np.prod(shape)))], np.uint8)
        packed = bits[0::2] | bits[1::2] << 4
        spec = safetensors.TensorSpec(dtype="float4_e2m1fn_x2", shape=shape[:-1] + [shape[-1] // 2], data_ptr=packed.ctypes.data, data_len=packed.nbytes)
        with open(self.path, "wb") as file:
            file.write(safetensors.serialize({"x": spec}))
        (read,) = nd.load_safetensors_with(self.path, mapped=bool(self.below(2)))
        assert same(read.numpy(), bits.view(ml_dtypes.float4_e2m1fn).astype(np.float16).reshape(shape)), shape

    def complex_of_safetensors(self):
        array = np.ascontiguousarray(self.array(["complex64"]))
        safetensors.numpy.save_file({"x": array}, self.path)
        (read,) = nd.load_safetensors_with(self.path, mapped=bool(self.below(2)))
        assert same(read.numpy(), pairs_of(array)), array.shape

    def npy_of_numpy(self):
        array = self.array(NUMPY_DTYPES + COMPLEX_DTYPES)
        written = self.laid_out(array)
        with open(self.path, "wb") as file:
            np.lib.format.write_array(file, written, version=[None, (1, 0), (2, 0), (3, 0)][self.below(4)])
        read = nd.load_npy(self.path, mapped=bool(self.below(2))).numpy()
        assert same(read, pairs_of(array)), (written.dtype, written.shape, written.flags)

    def npy_of_ndarc(self):
        array = self.array()
        nd.save_npy(self.path, self.tensor(array))
        assert same(np.load(self.path), array), (array.dtype, array.shape)
        expected = io.BytesIO()
        np.save(expected, array)
        with open(self.path, "rb") as file:
            assert file.read() == expected.getvalue(), (array.dtype, array.shape)

    def refused_of_numpy(self):
        array = [
            np.zeros(1, np.clongdouble), np.array(["text"]), np.array([b"bytes"]), np.array([{}], dtype=object),
            np.zeros(2, [("a", "f4"), ("b", "i4")]), np.array(["2026-01-01"], "M8[D]"), np.zeros(1, np.longdouble),
        ][self.below(7)]
        with open(self.path, "wb") as file:
            np.save(file, array, allow_pickle=True)
        try:
            nd.load_npy(self.path)
        except nd.Error as error:
            descr = np.lib.format.dtype_to_descr(array.dtype)
            assert (descr if isinstance(descr, str) else "structured") in str(error), error
            return
        raise AssertionError(array.dtype)

    def names(self, count):
        letters = "abz/.. é漢_"
        names = {"".join(letters[self.below(len(letters))] for _ in range(1 + self.below(6))) + str(i) for i in range(count)}
        return sorted(names)

    def npz_of_numpy(self):
        arrays = {name: self.array(NUMPY_DTYPES + COMPLEX_DTYPES) for name in self.names(self.below(5))}
        how = self.below(3)
        if how < 2:
            with open(self.path, "wb") as file:
                [np.savez, np.savez_compressed][how](file, **{k: self.laid_out(v) for k, v in arrays.items()})
        else:  # another writer: nothing can be patched afterwards, so sizes stand behind the data

            class Pipe(io.RawIOBase):
                written = b""

                def writable(self):
                    return True

                def write(self, data):
                    self.written += bytes(data)
                    return len(data)

            pipe = Pipe()
            with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED if self.below(2) else zipfile.ZIP_STORED) as archive:
                for name, array in arrays.items():
                    with archive.open(name + ".npy", "w", force_zip64=bool(self.below(2))) as entry:
                        np.lib.format.write_array(entry, array)
            with open(self.path, "wb") as file:
                file.write(pipe.written)
        read = {name: x.numpy() for name, x in nd.load_npz(self.path).items()}
        assert list(read) == list(arrays)
        assert all(same(read[name], pairs_of(arrays[name])) for name in arrays)

    def npz_of_ndarc(self):
        arrays = {name: self.array() for name in self.names(self.below(5))}
        tensors = [self.tensor(array) for array in arrays.values()]
        nd.save_npz(self.path, list(arrays), tensors, compressed=bool(self.below(2)))
        with zipfile.ZipFile(self.path) as archive:
            assert archive.testzip() is None
        with np.load(self.path) as read:
            assert list(read) == list(arrays)
            assert all(same(read[name], arrays[name]) for name in arrays)

    def gguf_of_gguf(self):
        """Values and tensors as the package writes them; quantized ones as it dequantizes them, to the same bits."""
        writer = gguf.GGUFWriter(self.path, "test")
        if self.below(2):
            writer.add_custom_alignment(8 << self.below(6))
        integers = {f"i{i}": int(self.random.integers(-(2**63), 2**63)) for i in range(self.below(4))}
        words = self.names(self.below(6) + 1)
        numbers = [int(n) for n in self.random.integers(-100, 100, self.below(5) + 1)]
        for key, value in integers.items():
            writer.add_int64(key, value)
        writer.add_float64("f64", 0.1)
        writer.add_string("text", words[0])
        writer.add_array("words", words)
        writer.add_array("numbers", numbers)
        expected = {}
        for name in self.names(self.below(4) + 1):
            kind = self.below(4)
            if kind == 0:
                array = self.array(["float32", "float16", "float64", "int8", "int16", "int32", "int64"])
                array = array.reshape(array.shape or (1,))
                if array.ndim > 4 or array.size == 0:  # the package cannot
                    array = array.reshape(-1)
                if array.size == 0:
                    continue
                writer.add_tensor(name, array)
                expected[name] = array
                continue
            kind = [None, gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_K][kind]
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            shape = (self.below(4) + 1, (self.below(4) + 1) * elements)
            if kind == gguf.GGMLQuantizationType.Q4_K:  # which it does not write: any bits, but finite scales
                blocks = self.random.integers(0, 256, (shape[0], shape[1] // elements, size), dtype=np.uint8)
                blocks[..., :4] = self.random.normal(0, 0.1, blocks.shape[:2] + (2,)).astype(np.float16).view(np.uint8)
                data = blocks.reshape(shape[0], -1)
            else:
                data = gguf.quants.quantize(self.random.normal(size=shape).astype(np.float32), kind)
            writer.add_tensor(name, data, raw_dtype=kind)
            expected[name] = gguf.quants.dequantize(data, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        self.check_gguf(integers, words, numbers, expected)

    def check_gguf(self, integers, words, numbers, expected):
        opened = nd.gguf_open(self.path)
        for key, value in integers.items():
            assert nd.gguf_get_i64(opened, key) == value
        assert nd.gguf_get_f64(opened, "f64") == 0.1
        assert nd.gguf_get_string(opened, "text").decode() == words[0]
        at, found = ctypes.c_size_t(0), []
        while (following := nd.gguf_next_string(opened, "words", at))[0]:
            found.append(following[1].decode())
        assert found == words, (found, words)
        assert nd.gguf_load_array(opened, "numbers").numpy().tolist() == numbers
        assert nd.gguf_get_tensor_count(opened) == len(expected)
        for name, array in expected.items():
            read = nd.gguf_load_tensor(opened, name, "float32", mapped=bool(self.below(2))).numpy()
            assert same(read, array), (name, read.dtype, array.dtype, read.shape, array.shape)

    def csv_of_numpy(self):
        """Random bits as NumPy writes them, with a header and gaps, read as NumPy does."""
        dtype = ["float32", "float64", "int8", "int64", "uint64", "int32"][self.below(6)]
        array = self.array([dtype], 20)
        array = array.reshape(array.shape[0], -1) if array.ndim and array.size else np.zeros((1, 1), dtype)
        separator = [",", ";", "\t", " "][self.below(4)]
        floats = array.dtype.kind == "f"
        header = ["", "a header,\nof two lines"][self.below(2)]
        np.savetxt(self.path, array, "%.17g" if floats else "%d", separator, header=header, newline=["\n", "\r\n"][self.below(2)])
        gaps = floats and separator in ",;" and self.below(2)
        if gaps:
            array = np.where(self.random.random(array.shape) < 0.2, np.array(np.nan, dtype), array)
            array[np.isnan(array).all(axis=1), 0] = 1  # a line of one gap alone is blank
            with open(self.path, "w") as file:
                file.write("".join(line + "\n" for line in ("# " + header.replace("\n", "\n# ")).split("\n")) if header else "")
                file.writelines(separator.join("" if np.isnan(x) else f"{x:.17g}" for x in row) + "\n" for row in array)
            expected = np.genfromtxt(self.path, dtype, delimiter=separator, ndmin=2)
        else:
            expected = np.loadtxt(self.path, dtype, delimiter=None if separator == " " else separator, ndmin=2)
        read = nd.load_csv(self.path, dtype, separator=separator, missing=bool(gaps), skip=2 if header else 0).numpy()
        assert read.shape == expected.shape and np.array_equal(read, expected, equal_nan=floats), (read, expected)

    def csv_of_ndarc(self):
        dtype = ["float32", "float64", "int8", "int64", "uint64", "int32", "float16", "bool"][self.below(8)]
        array = self.array([dtype], 20)
        array = array.reshape(array.shape[0], -1) if array.ndim and array.size else np.ones((1, 1), dtype)
        array = array[:, 0] if self.below(4) == 0 else array
        separator = [",", ";", "\t", " "][self.below(4)]
        nd.save_csv(self.path, self.tensor(array), separator=separator)
        kept = np.loadtxt(self.path, {"bool": "int8", "float16": "float32"}.get(dtype, dtype), delimiter=separator, ndmin=2)
        given = array.reshape(array.shape[0], -1).astype(kept.dtype)
        assert np.array_equal(kept, given, equal_nan=given.dtype.kind == "f")
        if given.dtype.kind == "f":
            assert np.array_equal(np.signbit(kept[~np.isnan(kept)]), np.signbit(given[~np.isnan(given)]))

    def picture(self, channels, dtype=np.uint8):
        """Noise, or waves that a JPEG keeps; sometimes flat, so that few bytes are much."""
        height, width = self.below(60) + 1, self.below(60) + 1
        if self.below(20) == 0:
            height, width = 900, 1000
            samples = np.full((height, width, channels), self.below(256))
        elif self.below(2):
            samples = self.random.integers(0, np.iinfo(dtype).max + 1, (height, width, channels))
        else:
            y, x, c = np.mgrid[:height, :width, :channels]
            samples = 127 + 120 * np.sin(y / 9 + x / 14 + c)
        return samples.astype(dtype)

    def read_back(self, **options):
        """The file, read from its path and from memory."""
        loaded = nd.load_image(self.path, **options).numpy()
        with open(self.path, "rb") as file:
            content = file.read()
        assert same(nd.decode_image(content, len(content), **options).numpy(), loaded)
        return loaded

    def png_of_pillow(self):
        mode = ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"][self.below(7)]
        channels, keywords, shown = len(mode) if mode[0] in "LR" else 1, {}, mode
        array = self.picture(channels, np.uint16 if mode == "I;16" else np.uint8)
        array = array[:, :, 0] if channels == 1 else array
        if mode == "1":
            picture, shown = Image.fromarray(array > 100), "L"
        elif mode == "P":
            colors, shown = 1 << [1, 2, 4, 8][self.below(4)], "RGB"
            picture = Image.fromarray((array.astype(int) % colors).astype(np.uint8)).convert("P")
            picture.putpalette(bytes(self.random.integers(0, 256, 3 * colors, dtype=np.uint8)))
            keywords["bits"] = colors.bit_length() - 1
        else:
            picture = Image.fromarray(array)
        if mode in ("L", "P", "RGB") and self.below(2):
            keywords["transparency"] = tuple(int(x) for x in array[0, 0]) if mode == "RGB" else int(np.asarray(picture)[0, 0])
            shown = {"L": "LA", "P": "RGBA", "RGB": "RGBA"}[mode]
        picture.save(self.path, "PNG", compress_level=self.below(10), **keywords)
        with Image.open(self.path) as opened:
            expected = np.asarray(opened if mode == "I;16" else opened.convert(shown))
        expected = expected.reshape(expected.shape[0], expected.shape[1], -1)
        assert same(self.read_back(), expected), (mode, shown, keywords)
        if mode in ("RGB", "RGBA") and "transparency" not in keywords:
            grey = np.asarray(picture.convert("RGB").convert("L"))
            assert same(self.read_back(channels=1)[:, :, 0], grey)
            assert same(self.read_back(channels=7 - channels), np.asarray(picture.convert("RGBA" if mode == "RGB" else "RGB")))

    def png_of_ndarc(self):
        array = self.picture(self.below(4) + 1)
        nd.save_png(self.path, self.tensor(array), compression=self.below(10))
        with Image.open(self.path) as opened:
            assert opened.mode == ["L", "LA", "RGB", "RGBA"][array.shape[2] - 1]
            assert same(np.asarray(opened).reshape(array.shape), array)
        deep = self.picture(1, np.uint16)
        nd.save_png(self.path, self.tensor(deep))
        with Image.open(self.path) as opened:
            assert same(np.asarray(opened).astype(np.uint16), deep[:, :, 0])

    def jpeg_of_pillow(self):
        channels = [1, 3][self.below(2)]
        array = self.picture(channels)
        picture = Image.fromarray(array[:, :, 0] if channels == 1 else array)
        orientation = self.below(9)
        exif = Image.Exif()
        if orientation:
            exif[0x0112] = orientation
        picture.save(
            self.path, "JPEG", quality=self.below(100) + 1, progressive=bool(self.below(2)), subsampling=self.below(3),
            optimize=bool(self.below(2)), exif=exif, restart_marker_blocks=self.below(3))
        with Image.open(self.path) as opened:
            expected = np.asarray(opened).reshape(array.shape)
            shown = np.asarray(ImageOps.exif_transpose(opened))
        assert same(self.read_back(), expected), (array.shape, orientation)
        assert same(self.read_back(oriented=True), shown.reshape(shown.shape[0], shown.shape[1], channels))
        with Image.open(self.path) as opened:
            opened.draft("L", opened.size)
            assert same(self.read_back(channels=1)[:, :, 0], np.asarray(opened))
        if self.below(4) == 0:
            Image.fromarray(self.picture(4), "CMYK").save(self.path, "JPEG")
            try:
                nd.load_image(self.path)
            except nd.Error as error:
                assert "CMYK" in str(error) or "YCCK" in str(error), error
                return
            raise AssertionError("CMYK")

    def jpeg_of_ndarc(self):
        array = self.picture([1, 3][self.below(2)])
        quality = self.below(100) + 1
        nd.save_jpeg(self.path, self.tensor(array), quality=quality, progressive=bool(self.below(2)))
        with Image.open(self.path) as opened:
            assert opened.mode == {1: "L", 3: "RGB"}[array.shape[2]]
            read = np.asarray(opened).reshape(array.shape)
        assert same(self.read_back(), read)
        ours = np.abs(read.astype(int) - array).mean()
        Image.fromarray(array.reshape(array.shape if array.shape[2] == 3 else array.shape[:2])).save(self.path, "JPEG", quality=quality)
        with Image.open(self.path) as opened:
            theirs = np.abs(np.asarray(opened).reshape(array.shape).astype(int) - array).mean()
        assert ours <= 1.02 * theirs + 0.1, (ours, theirs)


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        files = Files(seed, folder)
        kinds = ["npy_of_numpy", "npy_of_ndarc", "refused_of_numpy", "npz_of_numpy", "npz_of_ndarc", "csv_of_numpy", "csv_of_ndarc"]
        kinds += ["shards_of_safetensors", "complex_of_safetensors"] if safetensors else []
        kinds += ["float8_of_safetensors"] if safetensors and ml_dtypes else []
        kinds += ["float4_of_safetensors"] if ml_dtypes and hasattr(safetensors, "TensorSpec") else []
        kinds += ["gguf_of_gguf"] if gguf else []
        kinds += ["png_of_pillow", "png_of_ndarc", "jpeg_of_pillow", "jpeg_of_ndarc"] if Image else []
        for i in range(count):
            getattr(files, kinds[i % len(kinds)])()
        assert nd.manager_get_total_objects(None) == 0, nd.dump()
    print(f"{count} files: {', '.join(kinds)}")


main()
