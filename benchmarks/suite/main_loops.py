"""The main loop of a kernel in LLVM's assembly: its instructions, and the bytes that it stores."""

import re

LEAST = 16  # bytes that it stores: what stores fewer handles the ends of rows
LABEL = re.compile(r"^(\.L\w+|LBB\w+):")
INSTRUCTION = re.compile(r"^\t([a-z][\w.]*)(?:[ \t]+(.*))?$")
JUMP = re.compile(r"^(?:j\w+|b|b\.\w+|cbn?z|tbn?z)$")
WIDTHS_X86 = {"z": 64, "y": 32, "x": 16}
WIDTHS_ARM = {
    "z": 32,
    "q": 16,
    "v": 16,
    "d": 8,
    "x": 8,
    "s": 4,
    "w": 4,
    "h": 2,
    "b": 1,
}  # SVE: V1's
# Of x86: bytes of stores whose register is wider than what they store.
PARTS = {"vmovd": 4, "vmovss": 4, "vpextrb": 1, "vpextrw": 2, "vpextrd": 4,
         "vextracti128": 16, "vextractf128": 16}  # fmt: skip
EIGHT = re.compile(r"^v?(?:mov[lh]p[sd]|movq|movsd|pextrq)$")
HALVES = re.compile(r"^v?(?:cvtps2ph|pmov\w*[qdw][dwb]|extract[if]\d+x4)$")


def main_loop(text, arm):
    """Of the longest innermost loop: instructions, and bytes stored, per iteration."""
    best, lines, at = (0, 0), [], {}
    for line in text.splitlines():
        label = LABEL.match(line)
        if label:
            at[label[1]] = len(lines)
            continue
        found = INSTRUCTION.match(line.partition("//" if arm else "#")[0].rstrip())
        if not found:
            continue
        name, operands = found[1], found[2] or ""
        lines.append((name, operands))
        target = operands.rpartition(",")[2].strip()
        if JUMP.match(name) and target in at:
            body = lines[at[target] :]
            stored = sum(_stored(*one, arm) for one in body)
            if stored >= LEAST:
                best = max(best, (len(body), stored))
            at.clear()  # loops around it are not innermost
    return {"loop instructions": best[0], "loop bytes": best[1]}


def _stored(name, operands, arm):
    if ("[sp" if arm else "(%rsp") in operands:
        return 0  # what is spilled
    return _stored_arm(name, operands) if arm else _stored_x86(name, operands)


def _stored_arm(name, operands):
    if not name.startswith(("st", "stur", "stnp")) or "[" not in operands:
        return 0
    registers = operands.partition("[")[0]
    if name in ("strb", "sturb"):
        return 1
    if name in ("strh", "sturh"):
        return 2
    lane = re.match(r"^st\d$", name) and re.search(r"\{.*\.([bhsd])\s*\}\s*\[", operands)
    if lane:
        return WIDTHS_ARM[lane[1]]
    halves = re.findall(r"\bv\d+\.(\d+)([bhsd])", registers)
    if halves:
        return sum(int(count) * WIDTHS_ARM[kind] for count, kind in halves)
    return sum(WIDTHS_ARM[kind] for kind in re.findall(r"\b([qdxswhb])(?:\d+|zr)\b", registers))


def _stored_x86(name, operands):
    if not re.search(r"\)(?:\s*\{[^}]*\})*$", operands) or name.startswith(("cmp", "test", "bt")):
        return 0
    vector = re.search(r"%([xyz])mm\d+", operands)
    if name.startswith(("lea", "prefetch", "nop", "v" if not vector else "-")):
        return 0
    if name in PARTS:
        return PARTS[name]
    if EIGHT.match(name):
        return 8
    if vector:
        whole = WIDTHS_X86[vector[1]]
        return whole // 2 if HALVES.match(name) else whole
    return {"b": 1, "w": 2, "l": 4, "q": 8}.get(name[-1], 0) if name.startswith(("mov",)) else 0
