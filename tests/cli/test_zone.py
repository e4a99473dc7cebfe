"""``maptr zone build`` and ``maptr zone check``: files, messages and exit codes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import dns.zone
import pytest

from maptr.zone.lint import OTHER_ANSWER
from tests.support import command_line
from tests.support.entries import LONG, entry, tables, written

ZONES = Path(__file__).resolve().parents[2] / "zones"
SAMPLE = str(ZONES / "sample.json")

BAD_AND_GOOD = {
    "data": [
        {"what": "12345", "target": {"url": "https://h.example.org/${content}", "http_code": 302}},
        {"what": "13030", "target": {"url": "http://192.168.1.12/${content}", "http_code": 302}},
        {"what": "vowels", "target": {"url": "https://h.example.org/", "http_code": 302}},
    ]
}


run = partial(command_line.run, "zone")


def serial(path: Path) -> int:
    zone = dns.zone.from_file(str(path), relativize=False)
    return int(zone.get_soa().serial)


def test_build_writes_a_zone_that_check_accepts(tmp_path: Path) -> None:
    target = tmp_path / "ark.arpa.zone"
    options = "-o", target, "--serial", "7", "--ns", "ns1=192.0.2.1"
    run("build", SAMPLE, *options, code=0, out="", said="zone ark.arpa. serial 7: 13 NAANs")
    assert serial(target) == 7
    assert run("check", "--strict", target).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["ark.arpa.zone"]


def test_a_warning_says_that_a_zone_without_name_servers_is_local(tmp_path: Path) -> None:
    target = tmp_path / "ark.arpa.zone"
    said = "its name server is localhost, for this machine alone: --ns names others"
    assert said in run("build", SAMPLE, "-o", target).stderr
    assert "not-public: names localhost., which is not public" in run("check", target, code=0).stdout
    assert said in run("build", SAMPLE, "-o", target).stderr.splitlines()[-1]  # unchanged, with the same warning
    assert "localhost" not in run("build", SAMPLE, "-o", target, "--ns", "ns1=192.0.2.1").stderr


def test_build_reads_any_format_for_any_origin_and_writes_to_stdout(tmp_path: Path) -> None:
    natab = run("build", ZONES / "sample.natab", "--serial", "1", "--origin", "ark.example", code=0)
    assert natab.stdout.startswith("$ORIGIN ark.example.\n")
    piped = run("build", "-", "--serial", "1", "--origin", "ark.example", text=(ZONES / "sample.natab").read_text())
    assert piped.stdout == natab.stdout


def test_records_with_errors_are_left_out_and_named(tmp_path: Path) -> None:
    source = tmp_path / "registry.json"
    source.write_text(json.dumps(BAD_AND_GOOD))
    result = run("build", source, "--serial", "1", code=0, said="left out: error: 13030: no-public-host")
    assert "12345 IN NAPTR" in result.stdout
    assert "13030" not in result.stdout
    assert "vowels" in result.stderr
    assert run("build", "--strict", source, "--serial", "1").exit_code == 1


def test_exit_code_1_if_arks_of_a_left_out_shoulder_get_another_answer(tmp_path: Path) -> None:
    file, target = written(tmp_path / "r.json", tables(entry("12345/x7", LONG))), tmp_path / "zone"
    for _ in range(2):  # the second time, the zone is unchanged, but still an error
        result = run("build", file, "-o", str(target), code=1, said="left out: error: 12345/x7: rule-too-long")
        assert f"error: 12345/x7: {OTHER_ANSWER}: " in result.stderr
        assert "12345 IN NAPTR" in target.read_text()
    unread = json.loads(Path(file).read_text())["data"]
    unread.append({"what": "ark:/12345/x9", "target": {"url": 5}})
    Path(file).write_text(json.dumps({"data": unread}))
    checked = command_line.run("table", "check", file, code=1)
    for record in ("12345/x7", "ark:/12345/x9"):
        assert f"error: {record}: {OTHER_ANSWER}: " in checked.stdout


def test_date_serials_increase_and_an_unchanged_zone_keeps_its_serial(tmp_path: Path) -> None:
    target = tmp_path / "zone"
    built = json.loads(run("build", SAMPLE, "-o", target, "--json").stdout)
    first = serial(target)
    before = target.stat().st_mtime_ns
    again = json.loads(run("build", SAMPLE, "-o", target, "--json", code=0, said="unchanged").stdout.splitlines()[-1])
    assert built == {**again, "zone": "ark.arpa.", "file": str(target), "serial": first, "written": True}
    assert again["written"] is False
    assert (serial(target), target.stat().st_mtime_ns) == (first, before)
    run("build", ZONES / "sample.natab", "-o", target)
    assert serial(target) == first + 1
    run("build", SAMPLE, "-o", target, "--serial", "5")
    assert serial(target) == 5


def test_servers_ttl_and_included_records(tmp_path: Path) -> None:
    more = "--ttl=60", f"--include={ZONES / 'delegations.zone'}", "--contact=jo.doe@example.org"
    result = run("build", SAMPLE, "--serial=1", "--ns=ns1=192.0.2.1", "--ns=ns.example.net", *more, code=0)
    assert "$TTL 60" in result.stdout
    assert "SOA ns1.ark.arpa. jo\\046doe.example.org. 1 " in result.stdout
    assert "ns1.ark.arpa. IN A 192.0.2.1" in result.stdout
    assert "20775 IN NAPTR" not in result.stdout
    assert "delegated: 20775" in result.stderr


def test_a_zone_with_errors_is_not_written(tmp_path: Path) -> None:
    target = tmp_path / "zone"
    target.write_text(OLD_ZONE)
    include = tmp_path / "include"
    include.write_text('12346 60 IN NAPTR 0 0 "h" "ark" "USLC" h.example.\n')
    run(
        "build",
        SAMPLE,
        "-o",
        target,
        "--include",
        str(include),
        code=1,
        said=f"{include}:1: error: 12346.ark.arpa.: regexp-refused",
    )
    assert target.read_text() == OLD_ZONE


def test_check_names_file_line_record_and_reason(tmp_path: Path) -> None:
    bad = tmp_path / "bad.zone"
    bad.write_text((ZONES / "ark.arpa.zone").read_text() + 'hello IN NAPTR 0 0 "h" "ark" "" h.example.\n')
    assert [run("check", bad, *option).exit_code for option in ((), ("--strict",))] == [0, 1], "a warning"
    bad.write_text((ZONES / "ark.arpa.zone").read_text() + '12999 IN NAPTR 0 0 "h" "ark" "" h.gov:8080.\n')
    lines = len(bad.read_text().splitlines())
    result = run("check", bad, code=1)
    assert result.stdout.startswith(f"{bad}:{lines}: error: 12999.ark.arpa.: unescaped-port: ")
    assert result.stderr == f"{bad}: 1 error, 0 warnings\n"
    document = json.loads(run("check", "--json", bad).stdout)
    assert document["schema"] == "maptr/1"
    assert [(f["code"], f["line"]) for f in document["findings"]] == [("unescaped-port", lines)]


def test_text_that_is_not_a_zone_gives_exit_code_1() -> None:
    assert "not-loaded" in run("check", "-", text="", code=1).stdout


OLD_ZONE = "ark.arpa. 60 IN SOA a. b. 1 2 3 4 5\nark.arpa. 60 IN NS a.\n"


@pytest.mark.parametrize(
    "content",
    ["my notes\n", '{"data": []}', OLD_ZONE.replace("ark.arpa", "ark.example"), "\udcff"],
    ids=["text", "registry", "another zone", "octets"],
)
def test_a_file_that_is_not_the_zone_is_not_replaced(content: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    octets = content.encode("utf-8", "surrogateescape")
    target.write_bytes(octets)
    run("build", SAMPLE, "-o", target, code=2, said="maptr may not have written it: give --overwrite to replace it")
    assert target.read_bytes() == octets
    run("build", SAMPLE, "-o", target, "--overwrite", code=0)
    assert "12345 IN NAPTR" in target.read_text()


def test_an_input_is_never_the_output(tmp_path: Path) -> None:
    source = tmp_path / "r.json"
    source.write_text(Path(SAMPLE).read_text())
    (tmp_path / "d").mkdir()
    for words in (["build", source], ["build", SAMPLE, "--include", source]):
        for out in (source, tmp_path / "d" / ".." / "r.json"):  # tests/cli/test_bulk.py tests links
            run(*words, "-o", out, "--overwrite", code=2, said="input and output are the same file")
            assert source.read_text() == Path(SAMPLE).read_text()


def test_a_zone_that_lost_its_names_is_not_replaced(tmp_path: Path) -> None:
    target, few = tmp_path / "zone", tmp_path / "few"
    run("build", SAMPLE, "-o", target, code=0)
    before = target.read_text()
    few.write_text("12345:\n    h.example.org  ACR\n#--- end of data ---\n")
    run("build", few, "-o", target, code=1, said="is not replaced: it lost")
    assert target.read_text() == before
    run("build", few, "-o", target, "--force", code=0)
    assert target.read_text() != before


def test_a_zone_is_written_through_a_link_and_to_standard_output(tmp_path: Path) -> None:
    target, link = tmp_path / "zone", tmp_path / "link"
    link.symlink_to(target)
    assert run("build", SAMPLE, "-o", link, "--serial", "1").exit_code == 0
    assert link.is_symlink()
    for name in ("-", "/dev/stdout"):
        with (tmp_path / "out").open("w") as out:
            command_line.run_process("zone", "build", SAMPLE, "--serial", "1", "-o", name, stdout=out, check=True)
        assert (tmp_path / "out").read_text() == target.read_text()


def test_check_sign_and_diff_read_included_files(tmp_path: Path) -> None:
    (tmp_path / "part").write_text("12345 60 IN A 192.0.2.1\n")
    zone = tmp_path / "zone"
    zone.write_text(f"{OLD_ZONE}$INCLUDE part\n")  # from the folder of the zone, wherever the command runs
    assert run("check", zone).exit_code == 0
    (tmp_path / "old").write_text(OLD_ZONE)
    result = run("diff", tmp_path / "old", zone)
    assert (result.exit_code, "12345.ark.arpa." in result.stdout) == (1, True)
    (tmp_path / "part").unlink()
    run("check", zone, code=1, said=f"{zone}:3: error: the zone: not-loaded: {tmp_path / 'part'}: No such file")
