"""From the loops to one object file: numba compiles, llvmlite joins the modules and drops what they do not need.

`python -m kcompact.kernels.build` writes a SHA-256 and that file to standard output; `load` runs it so.

Each kernel becomes a C function, `Signature.c_prototype`. Only the public interfaces of numba and llvmlite are used:
`numba.cfunc` and its LLVM text, and llvmlite's `binding`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from typing import Any

import numba
from llvmlite import binding
from numba import types

from kcompact.kernels import loops
from kcompact.kernels.signatures import KERNELS, SYMBOL_PREFIX, Signature
from kcompact.kernels.target import target_machine

_TYPES = {"u8": types.uint8, "u64": types.uint64, "i32": types.int32, "i64": types.int64}


def compile_all() -> bytes:
    """Return one object file with all kernels, each as a C function of its name. Takes some ten seconds.

    Raises whatever numba, LLVM or the operating system raise; the caller treats every failure alike.
    """
    modules = [_compiled(name, signature) for name, signature in KERNELS.items()]
    whole = modules[0]
    for module in modules[1:]:
        whole.link_in(module)
    machine = target_machine()
    _drop_unused(whole, machine)
    return bytes(machine.emit_object(whole))


def _compiled(name: str, signature: Signature) -> Any:
    """Return the LLVM module of one kernel, with its C function under the kernel's own name."""
    space: dict[str, Any] = {"kernel": getattr(loops, name), "carray": numba.carray}
    exec(_wrapper_source(signature), space)
    c_function = numba.cfunc(types.void(*_c_types(signature)), error_model="numpy")(space["wrapper"])
    module = binding.parse_assembly(c_function.inspect_llvm())
    module.get_function(c_function.native_name).name = f"{SYMBOL_PREFIX}{name}"
    return module


def _c_types(signature: Signature) -> Iterator[Any]:
    """Yield the types of the C parameters: of `Signature.c_prototype`, in the same order."""
    for one in signature.parameters:
        yield types.CPointer(_TYPES[one.type]) if one.dimensions else _TYPES[one.type]
        yield from (types.int64 for _ in one.extents)
    yield types.CPointer(types.int64)


def _wrapper_source(signature: Signature) -> str:
    """Return a Python function that takes the C parameters, makes arrays of the pointers and calls `kernel`."""
    parameters, arguments = [], []
    for one in signature.parameters:
        parameters += [one.name, *one.extents]
        shape = "".join(f"{extent}, " for extent in one.extents)
        arguments.append(f"carray({one.name}, ({shape}))" if one.dimensions else one.name)
    stores = [f"results[{number}]" for number in range(len(signature.results))]
    target = f"{', '.join(stores)} = " if stores else ""
    return f"def wrapper({', '.join([*parameters, 'results'])}):\n    {target}kernel({', '.join(arguments)})\n"


def _drop_unused(whole: Any, machine: Any) -> None:
    """Leave only what the C functions need.

    numba also makes functions for Python, and code that raises errors; both need numba when they run. They become
    internal here, and the optimizer, which now sees that no loop can fail, removes them.
    """
    for one in (*whole.functions, *whole.global_variables):
        if not one.is_declaration and not one.name.startswith(SYMBOL_PREFIX):
            one.linkage = "internal"
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(whole, builder)


if __name__ == "__main__":
    made = compile_all()
    sys.stdout.buffer.write(hashlib.sha256(made).digest() + made)
