"""Builds the pinned QEMU, and gives the command line that runs a program under a policy."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from harness.analysis.detectors import registry
from harness.build import build_progress
from harness.build.sources import emulator_wheel
from harness.core.digests import key_of, refuse_edited, sha256_of
from harness.core.errors import InfrastructureError, UsageError
from harness.core.model import ArchivePlace, Flavour, GuestEnvironment, Record
from harness.core.processes import environment, process
from harness.core.strict_toml import ROOT, read_toml
from harness.core.target_model import Policy, Target  # noqa: TC001 - msgspec reads the annotations when it decodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.build.sources.archives import Fetcher
    from harness.core.cache import Cache
    from harness.core.model import Build
    from harness.core.progress import Progress
    from harness.core.target_model import EmulatorSpec, Toolchain

BUILD_SECONDS = 3600
EMULATED_SIGABRT = 35
"""The host's signal that a guest receives as SIGABRT: QEMU keeps SIGABRT for its own abort(), and takes a real-time
signal that has no other meaning for the program's (linux-user/signal.c, signal_table_init)."""
LARGEST_USUAL_PAGE = 8192
"""What a distribution's emulators have for SPARC and Alpha; for most others it is 4096 bytes."""
QEMU_FOLDER = ROOT / "toolchains" / "qemu"
LIBRARIES = "lib"
"""The folder of the guest's root in which Debian's dynamic loaders look for a folder named by the triple."""
OLDEST_DEBIAN = "bookworm"
"""Whose libraries emulators for another kind of machine are linked with: every later release has them as well."""


class Qemu(Record, frozen=True):
    """toolchains/qemu/qemu.toml."""

    version: str
    sha256: str
    python_packages: list[str]
    packages: list[str]
    libraries: list[str]
    """What the emulator is linked with, as packages that a machine of another kind is compiled for with."""
    configure: list[str]
    places: list[ArchivePlace]


class CrossHost(Record, frozen=True):
    """A machine of another kind, for which this one compiles emulators."""

    machine: str
    """Its processor, as `uname --machine` says it."""
    triple: str
    """What its cross compiler is called before `-gcc`."""
    debian_architecture: str


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a target's programs: the part of the command line before the program."""

    target: Target
    policy: Policy
    program: Path | None
    """The emulator, or the tool that runs a native program; None: the host runs it."""
    options: list[str]
    records_faults: bool
    """False for a distribution's QEMU: it has no fault log, so a signal has no location."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables that the program needs beyond the plain environment: its detector's options."""
    guest_environment: GuestEnvironment = "usual"
    """What surrounds the programs (harness.build.environments)."""
    preloads: tuple[Path, ...] = ()
    """Shared objects of that environment, which every program preloads beside its own."""
    translations: Path | None = None
    """The cache's folder where the pinned emulator keeps translated code for the next process; None: it keeps none."""

    def command(
        self,
        program: Path,
        arguments: Sequence[str],
        fault_log: Path | None = None,
        coverage: Path | None = None,
        *,
        preload: Path | None = None,
        fatal_faults: Path | None = None,
        no_crash_maps: bool = False,
        plugin: str = "",
    ) -> list[str]:
        """The whole command line.

        `coverage`: the file of a `coverage.Edges`. `preload`: a shared object to preload into the program.
        `fatal_faults`: a file for the instructions whose misaligned access programs died of. One that faults again ends
        its program at once, after the log has it. The programs add to the file. `no_crash_maps`: a crash handler finds
        /proc/self/maps empty, if the faults are recorded. `plugin`: what the emulator loads.
        """
        objects = [*self.preloads, *([preload] if preload else [])]
        setting = f"LD_PRELOAD={':'.join(map(str, objects))}"
        if self.program is None:
            return [*(["env", setting] if objects else []), str(program), *arguments]
        preloading = ["-E", setting] if objects else []
        log = ["-fault-log", str(fault_log)] if fault_log and self.records_faults else []
        log += ["-fatal-faults", str(fatal_faults)] if log and fatal_faults else []
        log += ["-no-crash-maps"] if log and no_crash_maps else []
        edges = ["-coverage", str(coverage)] if coverage and self.reports_edges else []
        loading = ["-plugin", plugin] if plugin else []
        keeping = [] if edges or loading else self._keeping(program)
        options = [*self.options, *preloading, *log, *edges, *loading, *keeping]
        return [str(self.program), *options, str(program), *arguments]

    def _keeping(self, program: Path) -> list[str]:
        """The option that has translated code kept: a file for each program of the cache, and each way to run it.

        The emulator makes its folder. What it uses from the file, it compares with the program's instructions.
        """
        if self.translations is None or not program.is_relative_to(self.translations.parent):
            return []
        key = key_of([str(self.program), *self.options, str(program)])
        return ["-translations", str(self.translations / f"{program.name}-{self.target.name}-{key}" / "code")]

    @property
    def emulator_digest(self) -> str:
        """SHA-256 of the user-mode emulator; empty where a real kernel or this machine runs the programs."""
        return sha256_of(self.program) if self.program and self.target.emulator.is_qemu_user else ""

    @property
    def reports_edges(self) -> bool:
        """Whether its programs can record the edges that they execute, as under the pinned emulator."""
        return self.records_faults


class Emulators:
    """The emulators of this machine, built on demand and kept in the cache."""

    def __init__(
        self,
        cache: Cache,
        fetcher: Fetcher,
        progress: Progress,
        *,
        flavour: Flavour = "pinned",
        host: CrossHost | None = None,
    ) -> None:
        """`host`: whose emulators they are; None: this machine's."""
        self.cache = cache
        self.fetcher = fetcher
        self.progress = progress
        self.flavour = flavour
        self.host = host

    def prepare(self, specs: Sequence[EmulatorSpec]) -> dict[str, Path]:
        """QEMU name -> emulator program, for every user-mode emulator among the specs."""
        names = sorted({spec.qemu for spec in specs if spec.is_qemu_user})
        if self.flavour == "distro":
            return {name: _distribution_qemu(name) for name in names}
        qemu = read_toml(QEMU_FOLDER / "qemu.toml", Qemu)
        key = self._key(qemu)
        if self._absent(key, names):
            with self.cache.lock(f"qemu-{key}"):
                # Another run may have built them while this one waited.
                if self.host is None and (absent := self._absent(key, names)):
                    self._take_installed(key, absent)
                if absent := self._absent(key, names):
                    self._build(qemu, key, absent)
        return {name: emulator_folder(self.cache, key, name) / f"qemu-{name}" for name in names}

    def cached(self, specs: Sequence[EmulatorSpec]) -> set[str]:
        """The QEMU names of those user-mode emulators among the specs that need no build.

        They are in the cache or in an installed wheel.
        """
        names = sorted({spec.qemu for spec in specs if spec.is_qemu_user})
        key = self._key(read_toml(QEMU_FOLDER / "qemu.toml", Qemu))
        absent = self._absent(key, names)
        return {*names} - ({*absent} - emulator_wheel.search(key, absent).programs.keys())

    def _key(self, qemu: Qemu) -> str:
        return qemu_key(qemu) if self.host is None else f"{qemu_key(qemu)}-for-{self.host.machine}"

    def _absent(self, key: str, names: Sequence[str]) -> list[str]:
        return [name for name in names if self.cache.entry("emulators", f"{key}-{name}") is None]

    def _take_installed(self, key: str, names: list[str]) -> None:
        """Put the emulators of an installed wheel into the cache, if they are those of these sources."""
        found = emulator_wheel.search(key, names)
        for name, program in found.programs.items():
            self.cache.folder("emulators", f"{key}-{name}", partial(_publish, program))
        if found.programs:
            listed = ", ".join(found.programs)
            self.progress.say(f"using the emulators for {listed} from the package {emulator_wheel.DISTRIBUTION}")
        if found.problem:
            self.progress.say(f"compiling QEMU, although {emulator_wheel.DISTRIBUTION} is installed: {found.problem}")

    def _build(self, qemu: Qemu, key: str, names: list[str]) -> None:
        """Build several emulators in one build folder, because they share most of the work."""
        log = self.cache.log(f"qemu-{key}")
        source = self.fetcher.tree(f"qemu-{qemu.version}", qemu.sha256, qemu.places)
        cross = _CrossBuild(self.host, self.fetcher, qemu) if self.host is not None else None
        with (
            build_progress.counted_stage(
                self.cache,
                self.progress,
                "emulator",
                f"building QEMU {qemu.version} for {', '.join(names)}",
                history=["qemu", qemu.version, *names],
                verb="compiling",
            ) as steps,
            self.cache.work(f"qemu-{key}-{key_of(names)}") as work,
        ):
            steps.counts(partial(build_progress.ninja_steps, log))
            shutil.copytree(source, work / "source", symlinks=True)
            (work / "build").mkdir()
            for number, command in enumerate(_build_commands(qemu, work, names, cross)):
                process.run_successfully(
                    command,
                    problem="QEMU does not build here",
                    deadline_seconds=BUILD_SECONDS,
                    log=log,
                    folder=work / "source" if number == 0 else work / "build",
                    environment={
                        **environment.for_registry(),
                        **_object_cache(self.cache, work),
                        **(cross.environment if cross is not None else {}),
                    },
                    remedy="plumb doctor; or --emulator distro, which enforces less, as its canaries will show",
                )
            refuse_edited(self._key(qemu), key, str(QEMU_FOLDER))
            for name in names:
                built = work / "build" / f"qemu-{name}"
                self.cache.folder("emulators", f"{key}-{name}", partial(_publish, built))

    def runner(self, target: Target, toolchain: Toolchain, policy: Policy, programs: dict[str, Path]) -> Runner:
        """How to run a target's programs under a policy. Creates the guest's root folder of links if it is missing.

        Raises UsageError where a distribution's emulator has other pages than the target.
        """
        spec = target.emulator
        detector = registry.named(spec.detector)
        if spec.has_kernel:
            # The machine's own init starts its programs.
            return Runner(target=target, policy=policy, program=None, options=[], records_faults=False, environment={})
        if spec.runs_here:
            prefix = detector.command
            return Runner(
                target=target,
                policy=policy,
                program=Path(prefix[0]) if prefix else None,
                options=list(prefix[1:]),
                records_faults=False,
                environment=dict(detector.environment),
            )
        if self.flavour == "distro" and target.page_size_bytes > LARGEST_USUAL_PAGE:
            raise UsageError(
                f"no emulator with the pages of {target.name}",
                where="--emulator distro",
                because=f"a distribution's QEMU has no pages of {target.page_size_bytes} bytes",
                remedy="leave the option out, or the target",
            )
        options = ["-L", str(self.guest_root(toolchain))]
        if spec.cpu:
            options = ["-cpu", spec.cpu, *options]
        if self.flavour == "pinned":
            options += ["-page-size", str(target.page_size_bytes), "-alignment", alignment_option(policy)]
        return Runner(
            target=target,
            policy=policy,
            program=programs[spec.qemu],
            options=options,
            records_faults=self.flavour == "pinned",
            environment=dict(detector.environment),
            translations=self.cache.root / "translations" if self.flavour == "pinned" else None,
        )

    def guest_root(self, toolchain: Toolchain) -> Path:
        """A folder of links to the cross libraries, at the paths where the guest looks for them.

        Debian's dynamic loaders look in /lib/TRIPLE before /lib. What the root lacks, the emulator takes from this
        machine. Where this machine has libraries of the target, a program would have its loader from the one and its C
        library from the other, which differ in private structures: a forked child never left fork().
        """
        libraries = {inside: Path(outside) for inside, outside in sorted(toolchain.sysroot.items())}
        names = {inside: _names_in(outside) for inside, outside in libraries.items()}

        def link(into: Path) -> None:
            for inside, outside in libraries.items():
                (into / inside).mkdir()
                for name in names[inside]:
                    (into / inside / name).symlink_to(outside / name)
            if LIBRARIES in libraries:
                (into / LIBRARIES / toolchain.triple).symlink_to(libraries[LIBRARIES])

        # A package that is installed later adds names.
        parts = [word for inside, outside in libraries.items() for word in (f"{inside}={outside}", *names[inside])]
        return self.cache.folder("guest-roots", f"{toolchain.name}-{key_of([toolchain.triple, *parts])}", link)


def _names_in(folder: Path) -> list[str]:
    """What a folder contains; nothing if it is not there, as without the toolchain's packages."""
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def keeps_translations(command: Sequence[str]) -> bool:
    """Whether the emulator of a command line keeps translated code.

    It then needs steady addresses. Where it begins without them, it starts itself again, which takes some 3 ms.
    """
    return "-translations" in command


def runner_of(build: Build, runner: Runner) -> Runner:
    """How to run the programs of a build: a distribution's find their libraries in its root folder.

    This machine starts those of its own through their loader, which is told the folders.
    """
    root, program = build.root, build.server_binary
    if root is None:
        return runner
    if not runner.target.emulator.runs_here:
        return with_root(runner, root)
    loader = root / _loader_of(program).relative_to("/")
    folders = [str(folder) for parent in ("lib", "usr/lib") for folder in sorted((root / parent).glob("*-linux-gnu*"))]
    words = [*runner.options, str(loader), "--library-path", ":".join(folders)]
    return msgspec.structs.replace(
        runner, program=runner.program or Path(words[0]), options=words[0 if runner.program else 1 :]
    )


def with_root(runner: Runner, root: Path) -> Runner:
    """How to run programs whose dynamic loader and libraries are below a folder, where the target has `/`."""
    at = runner.options.index("-L") + 1
    return msgspec.structs.replace(runner, options=[*runner.options[:at], str(root), *runner.options[at + 1 :]])


def _loader_of(program: Path) -> Path:
    """The dynamic loader that a program names."""
    with program.open("rb") as stream:
        found = [one for one in ELFFile(stream).iter_segments() if isinstance(one, InterpSegment)]
        if not found:
            raise InfrastructureError(f"{program.name} names no dynamic loader", where=str(program))
        return Path(found[0].get_interp_name())


def alignment_option(policy: Policy) -> str:
    """A policy as the value of Plumbline's `-alignment` option (toolchains/qemu/overlay/linux-user/plumbline.c)."""
    words = [f"demand={policy.demand}", f"assumed={policy.assumed_bytes}", *(["report"] if policy.report else [])]
    words += [f"{name}=fixup" for name in policy.fixup] + [f"{name}=ignore" for name in policy.ignore]
    return ",".join(words)


def with_alignment(options: list[str], policy: Policy) -> list[str]:
    """An emulator's options with another policy."""
    if "-alignment" not in options:
        return options
    at = options.index("-alignment") + 1
    return [*options[:at], alignment_option(policy), *options[at + 1 :]]


def compiles(names: Sequence[str]) -> bool:
    """Whether QEMU has to be compiled for emulators that the cache lacks: unless an installed wheel has them all."""
    found = emulator_wheel.search(qemu_key(read_toml(QEMU_FOLDER / "qemu.toml", Qemu)), names)
    return found.programs.keys() != {*names}


def _publish(program: Path, into: Path) -> None:
    shutil.copy2(program, into)


def emulator_folder(cache: Cache, key: str, name: str) -> Path:
    """The path of emulator `name` for a `qemu_key`, whether or not it exists."""
    return cache.path("emulators", f"{key}-{name}")


def qemu_key(qemu: Qemu) -> str:
    """Content address of the emulators: source, Plumbline's changes, options."""
    return key_of([qemu.sha256, *qemu.configure, *qemu.python_packages, *qemu_changes().values()])


def qemu_changes() -> dict[str, str]:
    """Plumbline's changes: file below toolchains/qemu -> its SHA-256."""
    paths = [path for path in sorted(QEMU_FOLDER.rglob("*")) if path.suffix in {".c", ".h", ".patch"}]
    return {path.relative_to(QEMU_FOLDER).as_posix(): sha256_of(path) for path in paths}


def _object_cache(cache: Cache, work: Path) -> dict[str, str]:
    """What has ccache keep objects, wherever they are compiled."""
    return {"CCACHE_DIR": str(cache.root / "ccache"), "CCACHE_BASEDIR": str(work)}


class _CrossBuild:
    """What QEMU's configure script is told of another machine, and of its libraries."""

    def __init__(self, host: CrossHost, fetcher: Fetcher, qemu: Qemu) -> None:
        root = fetcher.packages(OLDEST_DEBIAN, host.debian_architecture, qemu.libraries)
        folders = [root / one / host.triple for one in ("usr/lib", "lib")]
        self.compiler = f"{host.triple}-gcc"
        searched = [f"-L{folders[0]}", *(f"-Wl,-rpath-link,{folder}" for folder in folders)]
        self.options = [f"--cross-prefix={host.triple}-", f"--extra-ldflags={' '.join(searched)}"]
        self.environment = {
            "PKG_CONFIG": "pkg-config",
            "PKG_CONFIG_SYSROOT_DIR": str(root),
            "PKG_CONFIG_LIBDIR": ":".join([f"{folders[0]}/pkgconfig", f"{root}/usr/share/pkgconfig"]),
        }


def _build_commands(qemu: Qemu, work: Path, names: list[str], cross: _CrossBuild | None = None) -> list[list[str]]:
    """Commands that patch the source, then prepare tools, configure and compile in the build folder.

    If the machine has ccache, a change of ours costs only the files that it concerns.
    """
    python = str(work / "python" / "bin" / "python")
    targets = ",".join(f"{name}-linux-user" for name in names)
    overlay = str(QEMU_FOLDER / "overlay") + "/."
    jobs = str(os.cpu_count() or 1)
    compiler = [f"--cc=ccache {cross.compiler if cross else 'cc'}"] if shutil.which("ccache") else []
    return [
        ["patch", "--strip=1", "--fuzz=0", f"--input={QEMU_FOLDER / 'hooks.patch'}"],
        ["cp", "--recursive", overlay, str(work / "source")],
        ["python3", "-m", "venv", str(work / "python")],
        [python, "-m", "pip", "install", "--quiet", *qemu.python_packages],
        [
            str(work / "source" / "configure"),
            f"--python={python}",
            f"--target-list={targets}",
            *compiler,
            *(cross.options if cross else []),
            *qemu.configure,
        ],
        ["ninja", "-j", jobs, *[f"qemu-{name}" for name in names]],
    ]


def _distribution_qemu(name: str) -> Path:
    found = shutil.which(f"qemu-{name}-static") or shutil.which(f"qemu-{name}")
    if found is None:
        raise InfrastructureError(
            f"no qemu-{name} of the distribution",
            remedy="apt-get install --yes --no-install-recommends qemu-user-static",
        )
    return Path(found)
