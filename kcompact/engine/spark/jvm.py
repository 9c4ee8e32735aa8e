"""The JVM behind a SparkContext: how it is started, connected to and ended.

PySpark is imported only after the JVM has been started, so that both start at the same time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.engine.spark import pyspark_private
from kcompact.engine.spark.class_archive import ClassArchive, find_archive
from kcompact.engine.spark.java import NO_SPACE, signal_name
from kcompact.errors import NO_SPACE_NUMBERS, ConfigError, EngineError, RefusedError
from kcompact.host.installation import how_to_add
from kcompact.wording import worded

if TYPE_CHECKING:
    from pyspark import SparkContext

START_S = 120.0
"""The time within which a JVM must accept connections."""
FULL_DISK_S = 5.0
"""So often it is asked whether its disk is full: then it will not."""
_TRIAL_BYTES = 4096
MAX_OUTPUT_BYTES = 1 << 17
"""How much of the output of a JVM is read."""
HOME_PROPERTY = "kcompact.home"
"""The Java system property with the private directory of a JVM. It identifies this JVM."""

JVM_OPTIONS = (
    # For a quick start. No large data passes through this JVM. The optimizing compiler would double the work of the
    # start, and only the encryption of shuffled blocks would be faster.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # The default is a share of the machine's memory, and the JVM touches all of it.
    "-Xms64m",
    # Write no file that other users can read, and none in the current directory.
    "-XX:-UsePerfData",
    "-XX:-CreateCoredumpOnCrash",
    "-XX:+ExitOnOutOfMemoryError",
    # The options of Spark's launcher (org.apache.spark.launcher.JavaModuleOptions), without the incubating vector
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


class Jvm:
    """A JVM for Spark: `start` starts it and returns, `connect` waits for it, `end` kills it.

    `settings` are Spark's. `environment` replaces this process's environment in the JVM. The JVM writes only to `home`,
    which is private.
    """

    def __init__(self, java: Path, settings: Mapping[str, str], environment: Mapping[str, str], home: Path) -> None:
        self._java = java
        self._settings = settings
        self._environment = environment
        self._home = home
        self._archive: ClassArchive | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: Any = None
        self._is_adopted = False
        self.log = home / "spark.log"
        (home / "log4j2.properties").write_text(LOG4J2_PROPERTIES, encoding="utf-8")
        self._options = [
            *JVM_OPTIONS,
            f"-Djava.io.tmpdir={home}",
            f"-D{HOME_PROPERTY}={home}",
            f"-XX:ErrorFile={home}/hs_err_%p.log",
            f"-Dlog4j2.configurationFile={(home / 'log4j2.properties').as_uri()}",
            *_extra_options(settings),
        ]

    @property
    def makes_archive(self) -> bool:
        """Whether `end` begins to make the first class-data archive, if a job has ended well by then.

        That takes some seconds in the background.
        """
        return self._archive is not None and self._archive.is_wanted

    def start(self) -> None:
        """Start the JVM and return, if Spark can be started directly; otherwise `connect` starts it.

        Cluster managers other than Spark's own need the preparations of `spark-submit`.
        """
        if not self._settings["spark.master"].startswith(("local", "spark://")):
            return
        if "spark.driver.extraClassPath" not in self._settings:
            jars = sorted((spark_home() / "jars").glob("*.jar"))
            self._archive = find_archive(self._java, jars, JVM_OPTIONS, scratch=self._home)
        self._launch()
        # The checksum is computed while the JVM starts on another core.
        if self._archive is not None and not self._archive.is_sound():
            self._relaunch()

    def connect(self) -> Any:
        """Wait until the JVM accepts connections and return its gateway, for `SparkContext(gateway=...)`.

        Returns None if PySpark has to start the JVM itself; `adopt` then takes the JVM over. The environment of this
        process must be `environment`, because PySpark reads it too. Raises NoAnswerError and the exceptions of PySpark.
        """
        from py4j.protocol import Py4JError

        while self._gateway is None and self._process is not None:
            try:
                self._gateway = self._connected(self._process)
            except (_DirectStartError, Py4JError, OSError):
                self._relaunch()
        if self._gateway is None:
            self._gateway = self._submitted()
        return self._gateway

    def adopt(self, sc: SparkContext) -> None:
        """Check that `sc` runs on this JVM, and take the JVM over if PySpark has started it itself.

        Raises EngineError if `sc` runs on the JVM of an earlier SparkContext.
        """
        if sc.getSystemProperty(HOME_PROPERTY) != str(self._home):
            raise EngineError(
                problem="PySpark uses the Java process of an earlier SparkContext of this process",
                hint="Run kcompact in a new process.",
            )
        if self._gateway is None:
            self._gateway = pyspark_private.gateway_of(sc)
            self._process = pyspark_private.process_of(self._gateway)
        self._is_adopted = True

    @property
    def kills_context(self) -> bool:
        """Whether `end` kills the JVM of the adopted SparkContext: False if the process is unknown."""
        return self._is_adopted and self._process is not None

    def end(self) -> None:
        """Kill the JVM. Its context is stopped or was never created. Java's own shutdown would only take longer."""
        if self._gateway is not None:
            with contextlib.suppress(Exception):  # The JVM is killed next, so no failure of its gateway matters.
                self._gateway.shutdown()
        self._end()
        if self._archive is not None:
            self._archive.make_in_background()

    def output(self) -> str:
        """Return the output of the JVM, for the message when Spark does not start. Of a long output only the start."""
        try:
            with self.log.open("rb") as log:
                return log.read(MAX_OUTPUT_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def _launch(self) -> None:
        """Start the gateway server directly, because `spark-submit` and its shell scripts take longer."""
        command = [
            str(self._java), "-cp", self._class_path(), f"-Xmx{heap(self._settings)}", *self._options,
            *(self._archive.options() if self._archive is not None else ()),
            pyspark_private.GATEWAY_SERVER,
        ]  # fmt: skip
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                # The gateway server ends when this pipe closes, so the JVM ends with this process, even after SIGKILL.
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**self._environment, **pyspark_private.direct_start_environment(self._connection_file)},
                # Ctrl-C must not reach the JVM, because it would end before its tasks are cancelled.
                start_new_session=True,
            )

    def _relaunch(self) -> None:
        """Kill the JVM. If it was started with a class archive, start it again without one."""
        self._end()
        had_archive = self._archive is not None
        self._archive, self._process = None, None
        if had_archive:
            self._launch()

    def _class_path(self) -> str:
        if self._archive is not None:
            return self._archive.class_path
        extra = self._settings.get("spark.driver.extraClassPath")
        return os.pathsep.join(([extra] if extra else []) + [str(spark_home() / "jars" / "*")])

    @property
    def _connection_file(self) -> Path:
        return self._home / "gateway"

    def _connected(self, process: subprocess.Popen[bytes]) -> Any:
        """Return the gateway of a JVM that was started directly.

        Raises _DirectStartError, Py4JError, OSError; NoAnswerError, after which a second start would take as long.
        """
        started, asked_at_s = time.monotonic(), FULL_DISK_S
        while not self._connection_file.exists():
            if process.poll() is not None or self._has_failed():
                self._log_end(process.returncode)
                raise _DirectStartError
            waited_s = time.monotonic() - started
            # On a full disk the JVM can write neither how to reach it nor why that failed, and runs on.
            if waited_s > asked_at_s:
                asked_at_s = waited_s + FULL_DISK_S
                if self._is_disk_full():
                    raise NoAnswerError(f"Java did not answer: {NO_SPACE}")
            if waited_s > START_S:
                raise NoAnswerError(f"Java did not answer within {START_S:g} seconds")
            time.sleep(0.005)
        connection = self._connection_file.read_bytes()
        self._connection_file.unlink()
        gateway = pyspark_private.connect(connection)
        if gateway is None:
            raise _DirectStartError
        return gateway

    def _is_disk_full(self) -> bool:
        """Return whether nothing can be written beside the files of the JVM."""
        trial = self._home / "trial"
        try:
            trial.write_bytes(bytes(_TRIAL_BYTES))
        except OSError as problem:
            return problem.errno in NO_SPACE_NUMBERS
        finally:
            trial.unlink(missing_ok=True)
        return False

    def _has_failed(self) -> bool:
        """Return whether the main function of the JVM has ended with an exception; the process may still run."""
        return b'Exception in thread "main"' in self.log.read_bytes()

    def _log_end(self, code: int | None) -> None:
        """Append the exit code of the JVM to its output. None: the JVM is still running and has printed why."""
        if code is not None:
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
            with self.log.open("a", encoding="utf-8") as log:
                log.write(f"\n{self._java} {how}\n")

    def _submitted(self) -> Any:
        """Start the JVM as PySpark does, through `spark-submit`, and return its gateway. None as for `connect`."""
        # Every user of the machine can see the arguments, so no secret is among them.
        arguments = ["--driver-memory", heap(self._settings), "--driver-java-options", shlex.join(self._options)]
        if extra := self._settings.get("spark.driver.extraClassPath"):
            arguments += ["--driver-class-path", extra]
        arguments += ["--master", self._settings["spark.master"], "pyspark-shell"]
        os.environ |= {
            # Without JAVA_HOME the first Java on the PATH runs. A `java` that is a script has no home beside it.
            "PATH": os.pathsep.join((str(self._java.parent), os.environ.get("PATH", os.defpath))),
            "SPARK_HOME": str(spark_home()),
            "SPARK_ENV_LOADED": "1",
        }
        with self.log.open("ab") as output:
            gateway = pyspark_private.submit(arguments, output)
        self._process = pyspark_private.process_of(gateway)
        return gateway

    def kill(self) -> None:
        """Kill the JVM if it runs, without waiting for its end."""
        if self._process is not None:
            self._process.kill()

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


class NoAnswerError(RuntimeError):
    """The JVM runs, but did not accept connections in time."""


class _DirectStartError(Exception):
    """The JVM ended."""


def spark_home() -> Path:
    """Return the directory of the installed PySpark without importing it. Raises RefusedError without the extra."""
    home = _directory_of("pyspark")
    _directory_of("py4j")
    return home


def _directory_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise RefusedError(
            path="Spark",
            problem=f"{package} is not installed; {worded('use --engine in-process')}, or {how_to_add('spark')}",
        )
    return Path(spec.submodule_search_locations[0]).resolve()


def check_settings(settings: Mapping[str, str]) -> None:
    """Raise ConfigError if a setting that goes into the JVM's command line cannot be read."""
    if "spark.driver.memory" in settings:
        heap(settings)
    _extra_options(settings)


def _extra_options(settings: Mapping[str, str]) -> list[str]:
    """Return the JVM options of the user. Raises ConfigError if they cannot be split."""
    name = "spark.driver.extraJavaOptions"
    try:
        return shlex.split(settings.get(name, ""))
    except ValueError as problem:
        raise ConfigError(path=name, problem=f"{str(problem).lower()}", hint="Check the quotation marks.") from None


def heap(settings: Mapping[str, str]) -> str:
    """Return `spark.driver.memory` as Java writes sizes. Raises ConfigError if it is not a size.

    Spark reads a number without a unit as MiB, and accepts `gb` for `g`. Source: JavaUtils.byteStringAs.
    """
    text = settings["spark.driver.memory"].strip().lower()
    size_match = re.fullmatch(r"(\d+)([kmgt]?)b?", text)
    if size_match is None:
        raise ConfigError(
            path="spark.driver.memory",
            problem=f"{text!r} is not a size",
            hint="Write a number and a unit, such as 512m or 4g.",
        )
    return size_match[1] + (size_match[2] or "m")
