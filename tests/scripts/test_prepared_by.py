"""The line by which a preparation says how it was called, which the report compares with that of the configuration."""

import subprocess
from pathlib import Path

from tests.config.published import CONFIGS
from tests.scripts.running import ROOT, completed, environment


def test_each_script_notes_the_line_of_the_configurations() -> None:
    files = [path.read_text() for path in CONFIGS.glob("*/*.yaml") if path.parent.name != "multi30k_de_en"]
    lines = {text.partition("# Data: ")[2].partition(";")[0] for text in files}
    noted = set()
    for line in (line for line in lines if "scripts/" in line):
        variant, _, script = line.rpartition("scripts/")
        settings = {"VARIANT": variant.strip().removeprefix("VARIANT=")} if variant else {}
        needed = ["made"] if script == "prepare_tatoeba.sh" else []
        for output in completed(script, *needed, DRY_RUN="1", **settings).splitlines():
            noted |= {output.partition("/prepared_by: ")[2]} if "/prepared_by: " in output else set()
    assert noted == {line for line in lines if "scripts/" in line}


def test_a_note_has_the_settings_that_change_the_text_and_every_call_that_made_it(tmp_path: Path) -> None:
    script = tmp_path / "prepare_x.sh"
    head = "# Settings: VARIANT, SIZE, WORKERS, CACHE, TEST_SETS, CHECKSUMS, DRY_RUN."
    script.write_text(
        f'{head}\nsource "$LIBRARY"\nread_settings "$@"\nVARIANT=${{VARIANT:-fairseq}} SIZE=${{SIZE:-9}}\n'
        'set_directory none "${words[@]}"\nnote_call\n[[ -z $STOP ]] || exit 0\nnote_prepared\n'
    )

    def noted(name: str, *words: str, stop: str = "", **settings: str) -> str:
        settings |= {"LIBRARY": str(ROOT / "scripts" / "lib.sh"), "STOP": stop, "TEST_SETS": "a", "CACHE": "b"}
        command = ["bash", str(script), str(tmp_path / name), *words]
        subprocess.run(command, env=environment(**settings), check=True)
        note = tmp_path / name / "prepared_by"
        return note.read_text() if note.exists() else ""

    plain, other = "scripts/prepare_x.sh\n", "scripts/prepare_x.sh CHECKSUMS=/dev/null\n"
    assert noted("a") == noted("a", CHECKSUMS="/dev/null") == noted("b", VARIANT="fairseq", WORKERS="3") == plain
    assert noted("c", "--size", "9", VARIANT="dsinit") == "VARIANT=dsinit scripts/prepare_x.sh SIZE=9\n"
    # Whatever an earlier call downloaded may still be part of the text; a directory without a note is unknown.
    assert noted("d", stop="1", CHECKSUMS="/dev/null") == ""
    assert noted("d") == other + plain
    (tmp_path / "e" / "raw").mkdir(parents=True)
    assert noted("e") == ""
