"""Build a tool from its Go module, once, in the project's cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.parts import MissingPart, cache_folder, say
from tests.parts.toolchain.catalogue import HELM_RENDERS_FOR, TOOLS, Tool

BUILD_S = 1800
PARTS = Path(__file__).with_name("collector.yaml")


def folder(env: Mapping[str, str]) -> Path:
    """Where the built tools lie."""
    return cache_folder(env) / "toolchain"


def find(name: str, env: Mapping[str, str]) -> Path:
    """The tool: on PATH if its version is the pinned one, else built.

    Raises MissingPart if it is neither there nor can be built; the message says how to get it.
    """
    tool = TOOLS[name]
    if on_path := _on_path(tool, env):
        return on_path
    # What is put together changes with its parts as well.
    parts = f"-{hashlib.sha256(PARTS.read_bytes()).hexdigest()[:8]}" if tool.assembled else ""
    built = folder(env) / "bin" / f"{name}-{tool.version}{parts}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder(env) / f".{name}.lock"):
            if not built.exists():
                _build(tool, built, env)
    return built


def command_folder(names: Iterable[str], env: Mapping[str, str]) -> Path:
    """A folder for PATH in which these tools are called by their names."""
    chosen = {name: find(name, env) for name in names}
    commands = folder(env) / "commands"
    commands.mkdir(parents=True, exist_ok=True)
    for name, path in chosen.items():
        link = commands / name
        if not (link.is_symlink() and link.readlink() == path):
            fresh = commands / f".{name}-{os.getpid()}"
            fresh.symlink_to(path)
            fresh.replace(link)
    return commands


def _on_path(tool: Tool, env: Mapping[str, str]) -> Path | None:
    found = shutil.which(tool.binary, path=env.get("PATH", ""))
    if found is None or not tool.says:
        return None
    said = subprocess.run([found, *tool.says], capture_output=True, text=True, timeout=60, check=False, env=dict(env))
    return Path(found) if tool.version.removeprefix("v") in said.stdout + said.stderr else None


def _build(tool: Tool, built: Path, env: Mapping[str, str]) -> None:
    go = shutil.which("go", path=env.get("PATH", ""))
    if go is None:
        version = tool.version.removeprefix("v")
        raise MissingPart(f"{tool.binary} {version} is missing: put it on PATH, or install Go 1.24 or newer, with which it is built once.")
    began = time.monotonic()
    say(f"building {tool.binary} {tool.version} ...")
    with tempfile.TemporaryDirectory(prefix="kgtest-build-") as place:
        fresh = built.with_name(f".{built.name}")
        (_assemble if tool.assembled else _compile)(tool, go, Path(place), fresh, env)
    fresh.replace(built)
    say(f"{tool.binary} {tool.version} built ({time.monotonic() - began:.0f} s)")


def _compile(tool: Tool, go: str, place: Path, fresh: Path, env: Mapping[str, str]) -> None:
    """From the module's own sources."""
    work = place / "source"
    shutil.copytree(module_source(go, tool.module, tool.version, env), work)
    # The module cache is read-only, and its copy would be.
    for one in (work, *work.rglob("*")):
        one.chmod(one.stat().st_mode | 0o200)
    for source, target in tool.embeds:
        shutil.copytree(work / source, work / target)
    command = [go, "build", "-trimpath", "-buildvcs=false", "-tags", tool.tags, "-ldflags", _linker_flags(tool), "-o", str(fresh)]
    _run([*command, tool.package], work, env, f"Go could not build {tool.binary}")


def _assemble(tool: Tool, go: str, place: Path, fresh: Path, env: Mapping[str, str]) -> None:
    """By the collector's builder, which writes a main module and compiles it with the Go on PATH."""
    builder = find("builder", env)
    recipe = place / "collector.yaml"
    recipe.write_text(PARTS.read_text().replace("OUTPUT", str(place / "out")))
    found = {**env, "PATH": f"{Path(go).parent}{os.pathsep}{env.get('PATH', '')}"}
    _run([str(builder), "--config", str(recipe)], place, found, f"{tool.binary} could not be put together")
    shutil.copy2(place / "out" / tool.binary, fresh)


def _linker_flags(tool: Tool) -> str:
    flags = ["-s", "-w"]
    if tool.stamp:
        flags += ["-X", f"{tool.stamp}={tool.version}"]
    if tool.helm_major:
        root = f"helm.sh/helm/v{tool.helm_major}/pkg"
        packages = ("chartutil", "lint/rules") if tool.helm_major == 3 else ("chart/common", "chart/v2/lint/rules")
        for package in packages:
            flags += ["-X", f"{root}/{package}.k8sVersionMajor=1", "-X", f"{root}/{package}.k8sVersionMinor={HELM_RENDERS_FOR}"]
    return " ".join(flags)


def module_source(go: str, module: str, version: str, env: Mapping[str, str]) -> Path:
    """A module's folder in Go's cache. It is built there as the main module, so that its own go.sum and replace lines count."""
    said = _run([go, "mod", "download", "-json", f"{module}@{version}"], Path("/"), env, f"Go could not fetch {module} {version}")
    return Path(json.loads(said)["Dir"])


def _run(command: list[str], where: Path, env: Mapping[str, str], failed: str) -> str:
    environment = {**env, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod" if command[1] == "mod" else ""}
    done = subprocess.run(
        command, cwd=where, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise MissingPart(f"{failed}; it said:\n{tail}")
    return done.stdout


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
