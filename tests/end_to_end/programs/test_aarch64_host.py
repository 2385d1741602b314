"""The programs that trace a command work on an AArch64 host, with its registers and system call numbers.

The tests need no such host. The starter runs under the emulator. Programs that need ptrace(2) and seccomp(2) run on
Debian's kernel for AArch64, in a machine that QEMU emulates. There, a program that prints its arguments stands in for
the emulator.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.emulators.compilation import OLDEST_DEBIAN
from harness.build.emulators.emulator_cache import Emulators
from harness.build.emulators.qemu_source import pinned_qemu
from harness.build.initramfs import cpio, with_libraries
from harness.build.sources.debian_archive import Apt, unpack_packages
from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.core.processes import process
from harness.record import fault_log, program_launch
from harness.run.programs import traced_command
from tests.end_to_end.programs.test_programs import UNTRACED, odd_program, setup_of
from tools.emulators import cross_host

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.end_to_end

FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{traced_command.HERE.parent}"]
BOOT_SECONDS = 600
SHOWN = """\
#include <stdio.h>

int main(int count, char **words)
{
    printf("emulator");
    for (int i = 1; i < count; i++)
        printf(" [%s]", words[i]);
    puts("");
    return count == 0;
}
"""
REGISTERS = r"""
#include <stdio.h>
#include <sys/syscall.h>

/* A call that the kernel refuses because of its arguments, made with registers alone. A compiler assumes that the call
 * preserves all registers except x0. */
int main(int count, char **words, char **environment)
{
    static char big[1 << 18];
    char *given[] = {words[1], big, NULL};
    int is_at = count > 2;
    for (unsigned i = 0; i < sizeof big - 1; i++)
        big[i] = 'x';
    register long x8 __asm__("x8") = is_at ? SYS_execveat : SYS_execve;
    register long x0 __asm__("x0") = is_at ? -100 : (long)words[1];
    register long x1 __asm__("x1") = is_at ? (long)words[1] : (long)given;
    register long x2 __asm__("x2") = is_at ? (long)given : (long)environment;
    register long x3 __asm__("x3") = is_at ? (long)environment : 3;
    register long x4 __asm__("x4") = 0;
    register long x5 __asm__("x5") = 5;
    long before[] = {x1, x2, x3, x4, x5, x8};
    __asm__ volatile("svc 0" : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x3), "+r"(x4), "+r"(x5), "+r"(x8) : : "memory");
    long after[] = {x1, x2, x3, x4, x5, x8};
    int changed = 0;
    for (int i = 0; i < 6; i++)
        changed += before[i] != after[i];
    printf("refused %ld, %d changed\n", x0, changed);
    return 0;
}
"""
CASES = {
    "./odd a 'b c'": ["emulator [-opt] [-0] [./odd] [./odd] [a] [b c]", "status exited 0 1", "guest /t/odd"],
    "sh -c './odd in; exit 3'": ["emulator [-opt] [-0] [./odd] [./odd] [in]", "status exited 3 1", "guest /t/odd"],
    # Each program of the host has the variable again when it begins.
    "sh -c 'export LD_PRELOAD=/t/odd; env | grep LD_; ./odd p'": [
        "LD_PRELOAD=/t/odd",
        "emulator [-opt] [-E] [LD_PRELOAD=/t/odd] [-0] [./odd] [./odd] [p]",
        "status exited 0 1",
        "guest /t/odd",
    ],
    "./script x": [
        "emulator [-opt] [-0] [/t/odd] [/t/odd] [first word] [./script] [x]",
        "status exited 0 1",
        "guest /t/odd",
    ],
    "/untraced clone ./odd u": ["emulator [-opt] [-0] [./odd] [./odd] [u]", "status exited 0 1", "guest /t/odd"],
    "/untraced clone3 ./odd u": ["emulator [-opt] [-0] [./odd] [./odd] [u]", "status exited 0 1", "guest /t/odd"],
    "/untraced listener /bin/true": [
        "status exited 0 0",
        "trouble what process N executes: it lets another one decide on system calls (seccomp(2))",
    ],
    "/registers ./odd": ["refused -7, 0 changed", "status exited 0 1", "refused guest 7"],
    "/registers ./odd at": ["refused -7, 0 changed", "status exited 0 1", "refused guest 7"],
    "sh -c '/other 2>/dev/null; true'": ["status exited 0 0", "foreign 43 /other"],
    "sh -c 'setsid sleep 100 & ./odd z; sleep 1'": [
        "emulator [-opt] [-0] [./odd] [./odd] [z]",
        "status exited 0 1",
        "left 1",
        "guest /t/odd",
    ],
}
"""Command -> the expected lines of its output and of the tracer's files."""
INIT = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mkdir /proc /t /tmp
mount -t proc proc /proc
mount -t tmpfs none /t
mount -t tmpfs none /tmp
cd /t
cp /odd odd
printf '#!/t/odd first word\\n' >script
chmod 755 script
try() {
    number=$1
    shift
    place=/tmp/p$number home=/tmp/h$number
    mkdir $place $home
    printf '%s\\0/shown\\0-opt\\0' $home >$place/emulator
    echo "case $number"
    timeout 60 /tracer $place $home /starter /shown 1,1,40 "$1" "$@"
    for line in status:$place/status trouble:$home/trouble stranger:$home/strangers foreign:$home/refused \\
        left:$home/left; do
        [ ! -f "${line#*:}" ] || sed "s|^|${line%%:*} |" "${line#*:}"
    done
    for guest in $home/guest-*; do
        [ ! -f $guest/launch ] || echo "guest $(tr '\\0' '\\n' <$guest/launch | sed -n 4p)"
        [ ! -f $guest/refused ] || echo "refused guest $(cat $guest/refused)"
    done
}
"""


def cross(name: str, source: Path | str, into: Path, *flags: str) -> Path:
    """Compile a program for AArch64 with all warnings."""
    if isinstance(source, str):
        (into / f"{name}.c").write_text(source, "utf-8")
        source = into / f"{name}.c"
    setup = setup_of("aarch64")
    command = [f"{setup.toolchain.triple}-gcc", *FLAGS, *flags, "-o", str(into / name), str(source)]
    process.run_successfully(command, problem=f"{name} does not compile", deadline_seconds=120)
    return into / name


def test_the_starter_of_an_aarch64_host_executes_the_emulator(tmp_path: Path) -> None:
    place, home = tmp_path / "p", tmp_path / "h"
    for folder in (place, home / "guest-1"):
        folder.mkdir(parents=True)
    cross("tracer", traced_command.HERE / "tracer.c", tmp_path)
    starter = cross("starter", traced_command.HERE / "starter.c", tmp_path)
    (place / "1").symlink_to(starter)
    (place / "emulator").write_bytes(os.fsencode(f"{home}\0/bin/echo\0-opt\0"))
    (place / "1.words").write_bytes(b"/t/odd\0first word\0./script\0")
    (place / "environment").write_bytes(b"PATH=/bin\0GONE=1\0")
    runner = setup_of("aarch64").runner("signal")
    words = [str(runner.program), *runner.options, "-0", "./script", str(place / "1"), "x"]
    (tmp_path / "config.log").touch()
    finished = subprocess.run(
        ["sh", "-c", 'exec 5>>config.log; exec "$@"', "sh", *words],
        cwd=tmp_path,
        env={"PATH": "/bin", "NEW": "a"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    log = home / "guest-1" / "faults.jsonl"
    assert finished.stdout == f"-opt -fault-log {log} -0 /t/odd /t/odd first word ./script x\n"
    launch = program_launch.read_launch(home / "guest-1")
    assert launch is not None
    assert (launch.program, launch.file, launch.words) == ("/t/odd", "./script", ["./script", "x"])
    assert launch.environment.items() >= {"NEW": "a", "GONE": None}.items()
    assert launch.configure == str(tmp_path / "config.log")


def kernel_and_shell() -> Path:
    """A folder with Debian's kernel for AArch64 and a static shell, as apt verified them."""

    def fetch(into: Path) -> None:
        apt = Apt(Cache.default().path("apt", "bookworm-arm64"), "bookworm", "arm64")
        apt.update()
        depends = apt.cache("depends", "linux-image-cloud-arm64").text
        kernel = re.search(r"linux-image-\d\S+", depends)
        assert kernel, depends
        fetched = apt.get("download", kernel[0], "busybox-static", folder=into)
        assert fetched.code == 0, fetched.text
        unpack_packages(sorted(into.glob("*.deb")), into / "root")

    return Cache.default().folder("test-programs", key_of(["aarch64 kernel and shell"]), fetch) / "root"


def booted(tmp_path: Path, files: Mapping[str, bytes]) -> str:
    """The console output of a machine that has these files, and runs /init on Debian's kernel for AArch64."""
    (tmp_path / "initrd").write_bytes(cpio(files))
    (kernel,) = (kernel_and_shell() / "boot").glob("vmlinuz-*")
    machine = ["-M", "virt", "-cpu", "cortex-a57", "-m", "512", "-nographic", "-no-reboot", "-nic", "none"]
    system = ["-kernel", str(kernel), "-initrd", str(tmp_path / "initrd")]
    command = ["qemu-system-aarch64", *machine, *system, "-append", "console=ttyAMA0 rdinit=/init quiet panic=-1"]
    shown = process.run(command, deadline_seconds=BOOT_SECONDS).text.replace("\r", "")
    assert "the end\n" in shown, shown
    return shown.partition("the end\n")[0]


@pytest.mark.slow(instead="tests/unit/build/test_emulator_wheel.py; test_programs.py, with this host's emulator")
def test_an_emulator_that_was_compiled_for_aarch64_enforces_and_records_there(tmp_path: Path) -> None:
    setup = setup_of("armv5")
    host = cross_host(setup.bench.catalog, "aarch64")
    assert host is not None
    bench, spec = setup.bench, setup.target.emulator
    (emulator,) = Emulators(bench.cache, bench.fetcher, bench.progress, host=host).prepare([spec]).values()
    qemu = pinned_qemu()
    root = bench.fetcher.packages(OLDEST_DEBIAN, host.debian_architecture, qemu.libraries)
    folders = {"usr/lib": root / "usr/lib" / host.triple, "lib/other": root / "lib" / host.triple}
    sysroot = setup_of("aarch64").toolchain.sysroot | {inside: str(path) for inside, path in folders.items()}
    tools = msgspec.structs.replace(setup_of("aarch64").toolchain, sysroot=sysroot)
    files = {inside: path.read_bytes() for inside, path in with_libraries({"/qemu": emulator}, tools).items()}
    of_target = with_libraries({"/odd": odd_program("armv5")}, setup.toolchain)
    files |= {f"/arm{inside}": path.read_bytes() for inside, path in of_target.items()}
    options = setup.runner("signal").options
    options[options.index("-L") + 1] = "/arm"
    call = shlex.join(["/qemu", *options, "-fault-log", "/faults", "/arm/odd"])
    files["/bin/busybox"] = (kernel_and_shell() / "bin" / "busybox").read_bytes()
    steps = [f"{call} clean", "echo status $?", f"{call} odd", "echo status $?", "cat /faults"]
    files["/init"] = "\n".join([INIT.partition("cd /t\n")[0], *steps, "echo the end", "poweroff -f", ""]).encode()
    shown = booted(tmp_path, files)
    assert re.findall(r"^status (\d+)$", shown, re.MULTILINE) == ["0", str(128 + signal.SIGBUS)], shown
    (tmp_path / "faults.jsonl").write_text(shown[shown.index('{"event"') :], "utf-8")
    recorded = fault_log.read(tmp_path / "faults.jsonl")
    (fault,) = recorded.faults
    assert fault_log.is_misaligned(fault)
    assert (fault.access, fault.access_bytes, fault.handled) == ("load", 4, False)
    assert "/arm/odd" in {one.path for one in fault.maps}
    assert sorted(end.signal for end in recorded.ends.values()) == [0, signal.SIGBUS]


@pytest.mark.slow(instead="the other tests of test_aarch64_host.py; test_programs.py, on this host")
def test_the_tracer_of_an_aarch64_host_sees_what_that_of_this_one_sees(tmp_path: Path) -> None:
    fetched = kernel_and_shell()
    sources: dict[str, Path | str] = {
        "tracer": traced_command.HERE / "tracer.c",
        "starter": traced_command.HERE / "starter.c",
        "shown": SHOWN,
        "registers": REGISTERS,
        "untraced": UNTRACED,
    }
    files = {f"/{name}": cross(name, source, tmp_path, "-static").read_bytes() for name, source in sources.items()}
    files |= {"/odd": odd_program("armv5").read_bytes(), "/other": odd_program("sparc64").read_bytes()}
    files["/bin/busybox"] = (fetched / "bin" / "busybox").read_bytes()
    tries = "".join(f"try {number} {command}\n" for number, command in enumerate(CASES))
    files["/init"] = f"{INIT}{tries}echo the end\npoweroff -f\n".encode()
    shown = booted(tmp_path, files)
    whole = re.sub(r"process \d+", "process N", shown)
    whole = re.sub(r" \[-fault-log\] \[[^]]*\]", "", whole)
    parts = re.split(r"^case \d+\n", whole, flags=re.MULTILINE)[1:]
    assert {command: part.splitlines() for command, part in zip(CASES, parts, strict=True)} == CASES
