"""The main loop of a kernel in LLVM's assembly: its instructions, and the bytes that it stores."""

import re

LEAST = 16  # bytes that it stores: what stores fewer handles the ends of rows
# What a block begins with, its label or only a comment.
LABEL = re.compile(r"^(?:(\.?LBB\w+):|(?:#|//) %bb\.\d+:)")
PARENT = re.compile(r"Parent Loop (\w+)")  # the innermost one comes last
LOOP = re.compile(r"=>\s*This (?:Inner )?Loop Header|in Loop: Header=(\w+)")
INSTRUCTION = re.compile(r"^\t([a-z][\w.]*)(?:[ \t]+(.*))?$")
ENDS = ("jmp", "jmpq", "ret", "retq", "b", "br", "ud2", "brk")  # what goes on elsewhere
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


class Block:
    """Instructions of which only the last ones jump."""

    def __init__(self, label):
        self.label, self.loop = label, ""  # that of the first block of the innermost loop
        self.instructions = self.stored = 0
        self.targets = []  # blocks that may come next: labels, and the instructions until then


def main_loop(text, arm):
    """Instructions, and bytes stored, once around the innermost loop that stores most.

    Of such loops the longest one counts, and of the ways around it the shortest one of those that
    store most.
    """
    blocks, outer = _blocks(text, arm)
    ways = {loop: _way(blocks[loop], loop, blocks, outer, {}) for loop in outer}
    ways = {loop: way for loop, way in ways.items() if way and way[0] >= LEAST}
    around = {above for loop in ways for above in _within(outer[loop], outer)}
    found = [(stored, -less) for loop, (stored, less) in ways.items() if loop not in around]
    stored, instructions = max(found, default=(0, 0))
    return {"loop instructions": instructions, "loop bytes": stored}


def _within(loop, outer):
    """A loop and those around it."""
    while loop:
        yield loop
        loop = outer[loop]


def _way(block, loop, blocks, outer, known):
    """Bytes stored, and instructions as a negative number, from a block to the end of its loop."""
    if block.label not in known:
        known[block.label], ways = None, []
        for target, instructions in block.targets:
            way = (0, 0)
            if target != loop:
                inside = target in blocks and loop in _within(blocks[target].loop, outer)
                way = inside and _way(blocks[target], loop, blocks, outer, known)
            if way:
                ways.append((way[0] + block.stored, way[1] - instructions))
        known[block.label] = max(ways, default=None)
    return known[block.label]


def _blocks(text, arm):
    """{label: block} and, by the labels of their first blocks, {loop: the one around it or ""}.

    LLVM's comments tell of loops.
    """
    block, blocks, outer, ended = Block(""), {}, {}, True
    for line in text.splitlines():
        code, _, comment = line.partition("//" if arm else "#")
        begins = LABEL.match(line)
        if begins:
            before, block = block, Block(begins[1] or f"block {len(blocks)}")
            blocks[block.label] = block
            if not ended:
                before.targets.append((block.label, before.instructions))
            ended = False
        above, inside = PARENT.search(comment), LOOP.search(comment)
        if above:
            block.loop = f".L{above[1]}"
        elif inside and inside[1]:
            block.loop = f".L{inside[1]}"
        elif inside:
            block.loop, outer[block.label] = block.label, block.loop
        found = INSTRUCTION.match(code.rstrip())
        if not found:
            continue
        name, operands = found[1], found[2] or ""
        block.instructions += 1
        block.stored += 0 if "Spill" in comment else _stored(name, operands, arm)
        if JUMP.match(name):
            block.targets.append((operands.rpartition(",")[2].strip(), block.instructions))
        ended = name in ENDS
    return blocks, outer


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
