"""Compiles the loops to one object file: numba compiles, llvmlite links the modules and removes unused functions.

`python -m kcompact.kernels.build` writes a SHA-256 and the object file to standard output. `load` runs this command.

Each kernel becomes a C function with the prototype `Signature.c_prototype`. Only the public interfaces of numba and
llvmlite are used: `numba.cfunc` and its LLVM text, and llvmlite's `binding`.
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
    """Return one object file with all kernels, each as a C function of its name. Takes about ten seconds.

    Raises any exception of numba, LLVM and the operating system; the caller treats every failure alike.
    """
    modules = [_compiled(name, signature) for name, signature in KERNELS.items()]
    whole = modules[0]
    for module in modules[1:]:
        whole.link_in(module)
    machine = target_machine()
    _drop_unused(whole, machine)
    return bytes(machine.emit_object(whole))


def _compiled(name: str, signature: Signature) -> Any:
    """Return the LLVM module of one kernel; its C function has the name of the kernel."""
    space: dict[str, Any] = {"kernel": getattr(loops, name), "carray": numba.carray}
    exec(_wrapper_source(signature), space)
    c_function = numba.cfunc(types.void(*_c_types(signature)), error_model="numpy")(space["wrapper"])
    module = binding.parse_assembly(c_function.inspect_llvm())
    module.get_function(c_function.native_name).name = f"{SYMBOL_PREFIX}{name}"
    return module


def _c_types(signature: Signature) -> Iterator[Any]:
    """Yield the types of the C parameters, in the order of `Signature.c_prototype`."""
    for parameter in signature.parameters:
        yield types.CPointer(_TYPES[parameter.type]) if parameter.dimensions else _TYPES[parameter.type]
        yield from (types.int64 for _ in parameter.extents)
    yield types.CPointer(types.int64)


def _wrapper_source(signature: Signature) -> str:
    """Return the source of a function with the C parameters that turns pointers into arrays and calls `kernel`."""
    parameters, arguments = [], []
    for parameter in signature.parameters:
        parameters += [parameter.name, *parameter.extents]
        shape = "".join(f"{extent}, " for extent in parameter.extents)
        arguments.append(f"carray({parameter.name}, ({shape}))" if parameter.dimensions else parameter.name)
    stores = [f"results[{number}]" for number in range(len(signature.results))]
    target = f"{', '.join(stores)} = " if stores else ""
    return f"def wrapper({', '.join([*parameters, 'results'])}):\n    {target}kernel({', '.join(arguments)})\n"


def _drop_unused(whole: Any, machine: Any) -> None:
    """Remove everything that the C functions do not call.

    numba also generates functions for Python and code that raises errors. Both need numba at run time. They are made
    internal here, so the optimizer can remove them.
    """
    for symbol in (*whole.functions, *whole.global_variables):
        if not symbol.is_declaration and not symbol.name.startswith(SYMBOL_PREFIX):
            symbol.linkage = "internal"
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(whole, builder)


if __name__ == "__main__":
    object_file = compile_all()
    sys.stdout.buffer.write(hashlib.sha256(object_file).digest() + object_file)
