"""Writes gguf_types.gguf, which holds every tensor type that Megalith reads and every type of metadata, and
gguf_types.safetensors with the numbers that the `gguf` package (0.19) makes of them, and the blocks that it quantises to.

    pip install gguf safetensors numpy && python tests/golden/make_gguf_goldens.py
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFWriter, GGUFValueType
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

HERE = Path(__file__).parent
ROWS, COLUMNS = 3, 256
HALF_SCALES = {T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0]}


def blocks_of(kind, rng):
    """Blocks as bytes [rows, bytes a row]: quantised where the package can, else random ones with sane scales."""
    x = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32) * np.float32(0.3)
    x[0, :32] = 0
    if kind not in HALF_SCALES:
        return np.ascontiguousarray(quantize(x, kind)).view(np.uint8).reshape(ROWS, -1)
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS, COLUMNS // elements, size), dtype=np.uint8)
    for at in HALF_SCALES[kind]:
        scale = (rng.standard_normal(blocks.shape[:2]) * 0.01).astype(np.float16)
        blocks[..., at:at + 2] = scale[..., None].view(np.uint8)
    return blocks.reshape(ROWS, -1)


def main():
    rng = np.random.default_rng(7)
    writer = GGUFWriter(HERE / "gguf_types.gguf", "golden")
    writer.add_uint8("number.u8", 200)
    writer.add_int8("number.i8", -100)
    writer.add_uint16("number.u16", 60000)
    writer.add_int16("number.i16", -30000)
    writer.add_uint32("number.u32", 4000000000)
    writer.add_int32("number.i32", -2000000000)
    writer.add_uint64("number.u64", 2**63 + 5)
    writer.add_int64("number.i64", -(2**62))
    writer.add_float32("number.f32", 0.1)
    writer.add_float64("number.f64", 0.1)
    writer.add_bool("flag", True)
    writer.add_string("text", "Grüße, 世界")
    writer.add_array("list.text", ["a", "", "ž"])
    writer.add_array("list.i32", [1, -2, 3])
    writer.add_array("list.f32", [0.5, -1.5])
    writer.add_key_value("list.list", [[1, 2], [3]], GGUFValueType.ARRAY)
    expected = {}
    kinds = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.MXFP4, *HALF_SCALES]
    for kind in kinds:
        blocks = blocks_of(kind, rng)
        if kind == T.F32:
            values = blocks.view(np.float32)
            writer.add_tensor(kind.name, values)
        elif kind == T.F16:
            values = blocks.view(np.float16).astype(np.float32)
            writer.add_tensor(kind.name, blocks.view(np.float16))
        else:
            values = dequantize(blocks, kind)
            writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        expected[kind.name] = np.ascontiguousarray(values, dtype=np.float32)
    x = rng.standard_normal((4, 64)).astype(np.float32)
    x[1, 32:] = 0
    x[2, 5] = -40
    expected["quantize.input"] = x
    for kind in (T.F16, T.BF16, T.Q8_0, T.Q4_0):
        expected[f"quantize.{kind.name}"] = np.ascontiguousarray(quantize(x, kind)).view(np.uint8).reshape(4, -1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, HERE / "gguf_types.safetensors")


if __name__ == "__main__":
    main()
