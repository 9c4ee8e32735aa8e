"""The kernels as machine code: compiled once by numba, kept in the user's cache, and loaded from there without it.

Loading numba takes longer than cleaning a small log, so that is left to the one run that compiles. What it makes is one
object file, for this processor and these sources, which any later run links in a few milliseconds and calls as C
functions. The interpreter's lock is released in each call.

Machine code is run as it is found, so the cache must be nobody else's: a directory of our own that others cannot write
to, or there is no cache and each process compiles for itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import secrets
import sys
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import binding

from kcompact.host.user_cache import cache_directory
from kcompact.kernels.declared import KERNELS, Declared

_DTYPES = {"u8": np.dtype(np.uint8), "u64": np.dtype(np.uint64), "i64": np.dtype(np.int64), "i32": np.dtype(np.int32)}
_DIGEST_BYTES = 32


@cache
def _file_name() -> str:
    """Return a name that is another one whenever the machine code would be."""
    parts = [sys.version, binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()]
    parts += [f"{name} {metadata.version(name)}" for name in ("numba", "llvmlite", "numpy")]
    digest = hashlib.sha256("\n".join(parts).encode())
    for source in ("declared.py", "loops.py", "machine.py"):
        digest.update(Path(__file__).with_name(source).read_bytes())
    return f"kernels-{digest.hexdigest()[:32]}.o"


def is_compiled() -> bool:
    """Whether loading will be quick."""
    directory = cache_directory()
    return directory is not None and (directory / _file_name()).exists()


def load() -> dict[str, Callable[..., Any]]:
    """Return the kernels by name, compiled now if they are not in the cache."""
    directory = cache_directory()
    code = None
    if directory is not None:
        code = _read(directory / _file_name())
    if code is None:
        code = compile_all()
        if directory is not None:
            _write(directory / _file_name(), code)
    return _linked(code)


def _read(path: Path) -> bytes | None:
    """Return the code of a cache file, None if there is none, or if it is not as it was written, or not ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None
            content = file.read()
    except OSError:
        return None
    digest, code = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def _write(path: Path, code: bytes) -> None:
    """Keep code for the next run. Whatever goes wrong only means that it will be compiled again."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(hashlib.sha256(code).digest() + code)
        unfinished.replace(path)
        return
    with contextlib.suppress(OSError):
        unfinished.unlink()


# Compiling


def compile_all() -> bytes:
    """Return one object file with all kernels, each as a C function of its name."""
    import numba

    from kcompact.kernels import loops

    modules = []
    for name, declared in KERNELS.items():
        parameters, arguments = [], []
        for number, kind in enumerate(declared.takes):
            one = f"a{number}"
            if kind.endswith("[]"):
                parameters += [(one, f"{kind[:-2]}*"), (f"{one}_n", "i64")]
                arguments.append(f"carray({one}, ({one}_n,))")
            elif kind.endswith("[,]"):
                parameters += [(one, f"{kind[:-3]}*"), (f"{one}_n", "i64"), (f"{one}_m", "i64")]
                arguments.append(f"carray({one}, ({one}_n, {one}_m))")
            else:
                parameters.append((one, kind))
                arguments.append(one)
        source = _wrapper_source(name, declared, [one for one, _ in parameters], arguments)
        space: dict[str, Any] = {"kernel": getattr(loops, name), "carray": numba.carray}
        exec(source, space)
        c_types = [_numba_type(kind) for _, kind in parameters] + [numba.types.CPointer(numba.types.int64)]
        wrapper = numba.cfunc(numba.types.void(*c_types), error_model="numpy")(space["wrapper"])
        module = binding.parse_assembly(wrapper._library.get_llvm_str())
        module.get_function(wrapper.native_name).name = f"kcompact_{name}"
        modules.append(module)
    whole = modules[0]
    for module in modules[1:]:
        whole.link_in(module)
    machine = _target_machine()
    _drop_unused(whole, machine)
    return bytes(machine.emit_object(whole))


def _drop_unused(module: Any, machine: Any) -> None:
    """Leave only what the C functions need: numba makes functions for Python beside them, which need numba there."""
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and not one.name.startswith("kcompact_"):
            one.linkage = "internal"
    # Once more over all of it: now it shows that no loop can fail, and numba's way of raising errors goes too.
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)


def _wrapper_source(name: str, declared: Declared, parameters: list[str], arguments: list[str]) -> str:
    call = f"kernel({', '.join(arguments)})"
    body = ["result = " + call] if declared.returns else [call]
    if declared.returns == 1:
        body.append("out[0] = result")
    elif declared.returns:
        body += [f"out[{number}] = result[{number}]" for number in range(declared.returns)]
    lines = [f"def wrapper({', '.join([*parameters, 'out'])}):", *(f"    {line}" for line in body)]
    return "\n".join(lines) + "\n"


def _numba_type(kind: str) -> Any:
    from numba import types

    scalar = {"u8": types.uint8, "u64": types.uint64, "i64": types.int64, "i32": types.int32}[kind.rstrip("*")]
    return types.CPointer(scalar) if kind.endswith("*") else scalar


# Linking


def _target_machine() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )


_ENGINES: list[Any] = []
"""Kept for good: the code is theirs."""


def _linked(code: bytes) -> dict[str, Callable[..., Any]]:
    machine = _target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return {
        name: _callable(name, engine.get_function_address(f"kcompact_{name}"), declared)
        for name, declared in KERNELS.items()
    }


def _callable(name: str, address: int, declared: Declared) -> Callable[..., Any]:
    """Return a Python function that checks its arrays, for the loops cannot, and calls the code at an address."""
    kinds: list[Any] = []
    for kind in declared.takes:
        if "[" in kind:
            kinds += [ctypes.c_void_p] + [ctypes.c_int64] * (2 if "," in kind else 1)
        else:
            kinds.append(ctypes.c_uint64 if kind == "u64" else ctypes.c_int64)
    function = ctypes.CFUNCTYPE(None, *kinds, ctypes.c_void_p)(address)
    results = ctypes.c_int64 * max(1, declared.returns)

    def call(*given: Any) -> Any:
        flat: list[int] = []
        for value, kind in zip(given, declared.takes, strict=True):
            if "[" not in kind:
                flat.append(int(value))
                continue
            if value.dtype != _DTYPES[kind[: kind.index("[")]] or value.ndim != (2 if "," in kind else 1):
                raise TypeError(f"{name} takes {kind}, not {value.dtype} of {value.ndim} dimensions")
            if not value.flags.c_contiguous:
                raise TypeError(f"{name} takes contiguous arrays")
            flat.append(value.__array_interface__["data"][0])
            flat += value.shape
        out = results()
        function(*flat, ctypes.addressof(out))
        if declared.returns == 1:
            return out[0]
        return tuple(out) if declared.returns else None

    call.__name__ = name
    return call
