# tables_test.py: what sim/compiler/assembly.cpp says of shared arrays, beside the object files themselves: if the code
# of a function has the address of an array (a relocation), the table of that function has the array.
# python3 tests/simt/tables_test.py BUILD     (CTest: simt_tables)
import pathlib
import re
import subprocess
import sys


def readelf(*words):
    return subprocess.run(["readelf", "--wide", *words], capture_output=True, text=True, check=True).stdout


def functions_and_arrays(path):
    """Of an object file: functions as (section, begin, end, name), and the names of its thread-local variables."""
    functions, arrays = [], set()
    for line in readelf("--syms", path).splitlines():
        row = line.split()
        if len(row) == 8 and row[6].isdigit():
            if row[3] == "FUNC":
                begin = int(row[1], 16)
                functions.append((int(row[6]), begin, begin + int(row[2], 0), row[7]))
            elif row[3] == "TLS":
                arrays.add(row[7])
    return functions, arrays


def relocations(path):
    """(section, offset, symbol) of each."""
    sections = {name: int(number) for number, name in
                re.findall(r"^ *\[ *(\d+)\] (\S+)", readelf("--sections", path), re.M)}
    found, section = [], None
    for line in readelf("--relocs", path).splitlines():
        head = re.match(r"Relocation section '\.rela(\S+)'", line)
        if head:
            section = head[1]
        row = line.split()
        if section and len(row) >= 5 and row[2].startswith(("R_X86_64_", "R_AARCH64_")):
            found.append((section, sections.get(section), int(row[0], 16), row[4]))
    return found


def lacking(path):
    """Pairs of function and array that the code has and the table has not; and how many the table has."""
    functions, arrays = functions_and_arrays(path)
    code, table, at = set(), set(), {}
    for name, section, offset, symbol in relocations(path):
        if name == "flash_shared":
            at[offset] = symbol
        elif symbol in arrays and name.startswith(".text"):
            owner = next((f for s, begin, end, f in functions if s == section and begin <= offset < end), None)
            if owner:
                code.add((re.sub(r"\.(cold|part|isra|constprop).*", "", owner), symbol))
    for offset, symbol in at.items():
        if offset % 0x20 == 0:
            table.add((re.sub(r"\.(cold|part|isra|constprop).*", "", symbol), at.get(offset + 0x10)))
    return sorted(code - table), len(table)


def main(build):
    objects = [p for p in pathlib.Path(build).rglob("*.o") if b"flash_shared" in p.read_bytes()]
    wrong, entries = [], 0
    for path in sorted(objects):
        pairs, count = lacking(path)
        entries += count
        wrong += [f"{path.name}: {function} has the address of {array}, and its table has not"
                  for function, array in pairs]
    print("\n".join(wrong) or f"{entries} entries of {len(objects)} object files: none is missing")
    return 1 if wrong or entries < 50 else 0


sys.exit(main(sys.argv[1]))
