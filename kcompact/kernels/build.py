"""Builds the machine code: numba compiles the loops, llvmlite makes one object file, `ld.lld` a shared library.

`python -m kcompact.kernels.build [MACHINE...]` builds for these processors, without arguments for this machine's. What
is already built from the same sources is left as it is. numba, llvmlite and ziglang (with the linker) are requirements
of the build, never of a run.

Each kernel becomes a C function with the prototype `Signature.c_prototype`. Only the public interfaces of numba and
llvmlite are used: `numba.cfunc` and its LLVM text, and llvmlite's `binding`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.host.user_directories import temporary_directory
from kcompact.kernels.machine_code import BuildRecord, library_path
from kcompact.kernels.signatures import KERNELS, SYMBOL_PREFIX, Signature
from kcompact.kernels.target import CRC_STEP, FITS, TARGETS, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINKER = (
    *("ld.lld", "-shared", "--strip-all", "--gc-sections", "--build-id=none", "--hash-style=gnu"),
    *("-z", "now", "-z", "relro", "-z", "noexecstack", "-z", "defs", "--unresolved-symbols=ignore-all"),
)


def build_libraries(machines: Sequence[str]) -> list[Path]:
    """Build the shared libraries of some machines, where they are missing or older than their sources; return them.

    Raises SystemExit for a machine without kernels, and any exception of numba, LLVM, the linker and the operating
    system.
    """
    _require_targets(machines)
    stale = [machine for machine in machines if not is_current(machine)]
    if stale:
        ir = compiled_ir()
        for machine in stale:
            code = linked(object_file(ir, TARGETS[machine]))
            path = library_path(machine)
            path.parent.mkdir(exist_ok=True)
            _replace(path, code)
            _replace(path.with_suffix(".json"), _record(code).to_json())
    return [library_path(machine) for machine in machines]


def _require_targets(machines: Sequence[str]) -> None:
    """Raise SystemExit for a machine without kernels: before the compilation, which takes long."""
    if unknown := [machine for machine in machines if machine not in TARGETS]:
        sys.exit(f"kcompact has kernels for the processors {' and '.join(TARGETS)}, and none for {', '.join(unknown)}")


def is_current(machine: str) -> bool:
    """Return whether the machine code was built from the present sources."""
    path = library_path(machine)
    try:
        return BuildRecord.from_json(path.with_suffix(".json").read_bytes()) == _record(path.read_bytes())
    except (OSError, ValueError):
        return False


def _record(library: bytes) -> BuildRecord:
    sources = hashlib.sha256()
    folder = Path(__file__).parent
    for source in (folder / "build.py", folder / "columns.py", folder / "signatures.py", folder / "target.py"):
        sources.update(source.read_bytes())
    for source in sorted((folder / "loops").glob("*.py")):
        sources.update(source.read_bytes())
    return BuildRecord(library_sha256=hashlib.sha256(library).hexdigest(), sources_sha256=sources.hexdigest())


def _replace(path: Path, content: bytes) -> None:
    """Write a file beside the old one and rename it: a process that runs keeps the code that it has loaded."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def compiled_ir() -> str:
    """Return all kernels as LLVM's text, each as a C function of its name. Takes about twenty seconds."""
    # numba reads these variables when it is imported; without them it would compile for the processor of this machine.
    os.environ |= {"NUMBA_CPU_NAME": TARGETS["x86_64"].cpu, "NUMBA_CPU_FEATURES": "", "NUMBA_OPT": "3"}
    from llvmlite import binding

    # numba links what it compiles. The step of the checksum is known later, and is never called here.
    binding.add_symbol(CRC_STEP, ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value)
    modules = [_compiled(name, signature) for name, signature in KERNELS.items()]
    whole = modules[0]
    for module in modules[1:]:
        whole.link_in(module)
    return str(whole)


def _compiled(name: str, signature: Signature) -> Any:
    """Return the LLVM module of one kernel; its C function has the name of the kernel."""
    import numba
    from llvmlite import binding
    from numba import types

    from kcompact.kernels import loops

    space: dict[str, Any] = {"kernel": getattr(loops, name), "carray": numba.carray}  # type: ignore[attr-defined]
    exec(_wrapper_source(signature), space)
    c_function = numba.cfunc(types.void(*_c_types(signature)), error_model="numpy")(space["wrapper"])
    module = binding.parse_assembly(c_function.inspect_llvm())
    module.get_function(c_function.native_name).name = f"{SYMBOL_PREFIX}{name}"
    return module


def _c_types(signature: Signature) -> Iterator[Any]:
    """Yield the types of the C parameters, in the order of `Signature.c_prototype`."""
    from numba import types

    elements = {"u8": types.uint8, "u64": types.uint64, "i32": types.int32, "i64": types.int64}
    for parameter in signature.parameters:
        element: Any = elements[parameter.type]
        yield types.CPointer(element) if parameter.dimensions else element  # type: ignore[no-untyped-call]
        yield from (types.int64 for _ in parameter.extents)
    yield types.CPointer(types.int64)  # type: ignore[no-untyped-call]


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


def object_file(ir: str, target: Target) -> bytes:
    """Return a relocatable ELF file of the kernels for a processor, optimized for it."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()  # For `cpuid`.
    machine = binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="default"
    )
    whole = binding.parse_assembly(ir)
    whole.link_in(binding.parse_assembly(target.support))
    whole.triple, whole.data_layout = target.triple, str(machine.target_data)
    _drop_unused(whole, machine)
    return bytes(machine.emit_object(whole))


def _drop_unused(whole: Any, machine: Any) -> None:
    """Optimize the module, and remove everything that the C functions do not call.

    numba also generates functions for Python and code that raises errors. Both need numba at run time. They are made
    internal here, so the optimizer can remove them.
    """
    from llvmlite import binding

    offered = {FITS, *(f"{SYMBOL_PREFIX}{name}" for name in KERNELS)}
    for symbol in (*whole.functions, *whole.global_variables):
        if not symbol.is_declaration and symbol.name not in offered:
            symbol.linkage = "internal"
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(whole, builder)


def linked(relocatable: bytes) -> bytes:
    """Return a shared library made of one object file. Raises CalledProcessError with what the linker said."""
    with tempfile.TemporaryDirectory(dir=temporary_directory()) as directory:
        source, library = Path(directory, "kernels.o"), Path(directory, "kernels.so")
        source.write_bytes(relocatable)
        subprocess.run([sys.executable, "-m", "ziglang", *_LINKER, "-o", library, source], check=True)
        return library.read_bytes()


if __name__ == "__main__":
    build_libraries(sys.argv[1:] or [platform.machine()])
