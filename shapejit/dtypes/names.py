"""Aliases of dtypes, such as bf16 and half, and torch's dtypes. `table` has all other names.

A name of two dtypes, here or in a vocabulary, is ambiguous: looking it up raises an error.
"""

# fmt: off
DTYPE_ALIASES = (
    # name           dtype               who says so
    ("fp64",         "float64",          "CUDA"),
    ("fp32",         "float32",          "CUDA"),
    ("fp16",         "float16",          "CUDA"),
    ("double",       "float64",          "C, NumPy, torch"),
    ("single",       "float32",          "NumPy"),
    ("half",         "float16",          "NumPy, torch"),
    ("float",        "float32",          "C, torch"),
    ("float",        "float64",          "Python, NumPy"),
    ("int",          "int32",            "C, torch"),
    ("int",          "int64",            "Python, NumPy"),
    ("long",         "int64",            "torch"),
    ("short",        "int16",            "C, NumPy, torch"),
    ("byte",         "uint8",            "torch"),
    ("byte",         "int8",             "NumPy"),
    ("complex",      "complex128",       "Python"),
    ("str",          "string",           "Python"),
    # ml_dtypes and MLIR mean the float with infinities, all others the one of OCP.
    ("F8_E4M3",      "float8_e4m3",      "MLIR"),
    ("f8e4m3",       "float8_e4m3",      "MLIR"),
    ("fp8_e4m3",     "float8_e4m3",      "ml_dtypes"),
    ("fp8_e4m3",     "float8_e4m3fn",    "vLLM"),
    ("e4m3",         "float8_e4m3",      "ml_dtypes"),
    ("e4m3",         "float8_e4m3fn",    "OCP"),
    ("fp8_e5m2",     "float8_e5m2",      "vLLM"),
    ("e5m2",         "float8_e5m2",      "OCP"),
    ("float8",       "float8_e4m3fn",    "OCP"),
    ("float8",       "float8_e5m2",      "OCP"),
    ("fp8",          "float8_e4m3fn",    "OCP"),
    ("fp8",          "float8_e5m2",      "OCP"),
    ("float6",       "float6_e2m3fn",    "OCP"),
    ("float6",       "float6_e3m2fn",    "OCP"),
    ("fp6",          "float6_e2m3fn",    "OCP"),
    ("fp6",          "float6_e3m2fn",    "OCP"),
    ("float4",       "float4_e2m1fn",    "OCP"),
    ("fp4",          "float4_e2m1fn",    "OCP"),
    ("e2m1",         "float4_e2m1fn",    "OCP"),
    ("e8m0",         "float8_e8m0fnu",   "OCP"),
)

# The dtypes of torch, by the names of its own where they differ.
TORCH = {
    name: name
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
        "bfloat16", "float16", "float32", "float64", "complex32", "complex64", "complex128",
    )
} | {"float4_e2m1fn": "float4_e2m1fn_x2"}
# fmt: on

# Modules whose dtypes have canonical names, as `str` of a dtype shows it.
MODULES = ("torch", "numpy", "ml_dtypes", "jax.numpy", "mlx.core")
