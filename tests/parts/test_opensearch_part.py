"""The pieces that find and set up a node, as far as they need none."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parts import MissingPart, cache_folder
from tests.parts.opensearch import container, find_or_start, install, node, supervise
from tests.parts.opensearch.find import find_launch, find_source
from tests.parts.opensearch.java import find_java, parse_major
from tests.parts.opensearch.launch import Distribution, Jars, Jvm, find_distribution
from tests.parts.opensearch.layout import arrange


def _executable(file: Path, script: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def _distribution(home: Path, version: str, *plugins: str) -> Path:
    """Make what looks like a distribution, and return the folder to put on PATH."""
    for folder in ("lib", *(f"plugins/{plugin}" for plugin in plugins)):
        (home / folder).mkdir(parents=True)
    return _executable(home / "bin/opensearch", f"echo 'Version: {version}, Build: tar/0/2026, JVM: 25'").parent


def _supervise(log: Path, state: Path, *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", supervise.__file__, log, state, *command], stdin=subprocess.PIPE)


def _wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "25.0.1" 2025-10-21 LTS', 25),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.15" 2025-04-15', 17),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_java_versions_are_told_apart(text: str, major: int | None) -> None:
    """Every way in which a Java has named its version is understood, and a stub that is no Java is none."""
    assert parse_major(text) == major


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    """An old Java on PATH does not hide a new one that lies beside it."""
    _executable(tmp_path / "path/java", "echo 'openjdk version \"17.0.15\"' >&2")
    new = _executable(tmp_path / "side/25/bin/java", "echo 'openjdk version \"25.0.1\"' >&2")
    assert find_java({"PATH": f"{tmp_path}/path"}, [f"{tmp_path}/side/*"]) == new
    assert find_java({"PATH": f"{tmp_path}/path"}, []) is None


def test_a_machine_without_any_means_is_told_how_to_get_one(tmp_path: Path) -> None:
    """One sentence names all three ways out."""
    bare = {"PATH": "", "HOME": str(tmp_path)}
    with pytest.raises(MissingPart, match=r"Docker.*Java 21 or newer with Maven.*TEST_OPENSEARCH_URL"):
        find_source(bare)
    with pytest.raises(MissingPart, match="on PATH"):
        find_launch(bare)


def test_a_given_node_comes_first_and_is_used_as_it_is() -> None:
    """The test's own variable wins, without a look at the node behind it."""
    with find_or_start({"TEST_OPENSEARCH_URL": "https://user:word@search.test:9200/"}) as found:  # pragma: allowlist secret
        assert found == node.Node("https://user:word@search.test:9200", "TEST_OPENSEARCH_URL")


def test_a_docker_client_without_an_engine_is_passed_over(tmp_path: Path) -> None:
    """The client's own failure, and a client that fails politely, both count as no engine."""
    docker = tmp_path / "docker"
    _executable(docker, "exit 1")
    assert not container.image_at_hand({"PATH": str(tmp_path)})
    _executable(docker, "echo 'Cannot connect' >&2; exit 0")
    assert not container.image_at_hand({"PATH": str(tmp_path)})


def test_an_image_that_cannot_be_pulled_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An engine without a way to the registry leads to the next way, and says so."""
    _executable(tmp_path / "docker", '[ "$1" = info ] && echo 28.0')
    assert not container.image_at_hand({"PATH": str(tmp_path)})
    assert "cannot pull" in capsys.readouterr().err


def test_a_distribution_on_path_is_taken_only_if_it_fits(tmp_path: Path) -> None:
    """Version and plugin decide; the security plugin is switched off where it is there."""
    old = _distribution(tmp_path / "old", "2.19.1", "opensearch-knn")
    small = _distribution(tmp_path / "small", "3.5.0")
    full = _distribution(tmp_path / "full", "3.4.0", "opensearch-knn", "opensearch-security")
    assert find_distribution({"PATH": str(old)}) is None
    assert find_distribution({"PATH": str(small)}) is None
    found = find_distribution({"PATH": str(full)})
    assert found == Distribution(full / "opensearch", tmp_path / "full")
    assert found.settings == {"plugins.security.disabled": True}
    assert find_source({"PATH": str(full)}).origin == "opensearch on PATH"


def test_a_distribution_reads_our_settings_and_its_own_flags(tmp_path: Path) -> None:
    """The start script gets everything by its environment, heap last so that it wins."""
    home, state = tmp_path / "home", tmp_path / "state"
    (home / "config").mkdir(parents=True)
    (home / "config/jvm.options").write_text("-XX:+UseG1GC\n")
    node.write_settings(state, {})
    command = Distribution(home / "bin/opensearch", home).prepare(state, Jvm("300m"))
    assert command.environment["OPENSEARCH_PATH_CONF"] == str(state / "config")
    assert "-Xmx300m" in command.environment["OPENSEARCH_JAVA_OPTS"]
    assert (state / "config/jvm.options").read_text() == "-XX:+UseG1GC\n"


def test_load_gets_the_whole_compiler(tmp_path: Path) -> None:
    """The flag that makes tests start sooner stays out of a node that is not for tests."""
    jars = Jars(tmp_path, tmp_path / "java")
    assert "-XX:TieredStopAtLevel=1" in jars.prepare(tmp_path, Jvm()).argv
    assert "-XX:TieredStopAtLevel=1" not in jars.prepare(tmp_path, Jvm(quick=False)).argv


def test_settings_are_written_so_that_yaml_reads_them_back(tmp_path: Path) -> None:
    """Lists and flags keep their types, and None leaves a setting out."""
    node.write_settings(tmp_path, {"path.repo": ["/a b"], "some.flag": False, "http.port": 1, "discovery.type": None})
    assert (tmp_path / "config/opensearch.yml").read_text() == 'path.repo: ["/a b"]\nsome.flag: false\nhttp.port: 1\n'


def test_the_ports_of_one_call_are_distinct() -> None:
    """HTTP and transport never get the same port."""
    assert len(set(node.free_ports(8))) == 8


def test_a_server_ends_with_whoever_asked_for_it(tmp_path: Path) -> None:
    """The pipe closes when the parent goes: the server is stopped, its folder removed."""
    state = tmp_path / "state"
    state.mkdir()
    script = "trap 'echo stopped; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    with _supervise(tmp_path / "log", state, "/bin/sh", "-c", script) as supervisor:
        _wait_for(lambda: (tmp_path / "log").exists() and "up" in (tmp_path / "log").read_text())
        supervisor.communicate(timeout=10)
    assert supervisor.returncode == 0
    assert (tmp_path / "log").read_text() == "up\nstopped\n"
    assert not state.exists()


def test_a_server_that_ends_by_itself_is_noticed(tmp_path: Path) -> None:
    """Its exit status comes through, and its folder stays for whoever wants to know why."""
    with _supervise(tmp_path / "log", tmp_path, "/bin/sh", "-c", "echo why; exit 3") as supervisor:
        assert supervisor.wait(10) == 3
    assert (tmp_path / "log").read_text() == "why\n"


def test_the_last_words_of_a_node_are_messages() -> None:
    """Stack frames do not push the reason out of sight."""
    log = "java.net.BindException: in use\n" + "\tat a.b.C\n" * 99 + "end"
    assert node.tail(log) == "java.net.BindException: in use\nend"


def test_an_installation_counts_only_with_the_present_pins(tmp_path: Path) -> None:
    """A folder that other pins made, or that nobody finished, is no installation."""
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    home = cache_folder(env) / f"opensearch-{install.VERSION}"
    home.mkdir(parents=True)
    assert install.installed(env) is None
    (home / "installed-from.sha256").write_text("other pins")
    assert install.installed(env) is None


def test_a_relative_cache_folder_is_ignored() -> None:
    """The XDG specification says so."""
    assert cache_folder({"XDG_CACHE_HOME": "here", "HOME": "/h"}) == Path("/h/.cache/knowledge-gateway")


def test_a_jar_that_is_missing_is_named(tmp_path: Path) -> None:
    """An incomplete download fails where it happens, not as a class that the node cannot find."""
    (tmp_path / "jars").mkdir()
    with pytest.raises(FileNotFoundError, match="netty"):
        arrange(tmp_path / "jars", tmp_path / "home", "3.5.0")
