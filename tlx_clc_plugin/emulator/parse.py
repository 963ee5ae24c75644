"""PTX text to instructions with typed operands.

Grammar: PTX ISA, "Syntax" and "State spaces, types, and variables", as far as one kernel entry
needs it. Nested blocks may declare registers and labels anew, as inline assembly does.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace

from .errors import UnsupportedPtx
from .ptx import (
    SCALAR_BYTES,
    Address,
    Immediate,
    Instruction,
    Kernel,
    Label,
    Negated,
    Operand,
    Pair,
    Parameter,
    Register,
    Sink,
    SourceLine,
    Special,
    Symbol,
    Vector,
)

_SKIP = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.S)
_LINE_DIRECTIVE = re.compile(r"\.(version|target|address_size|file|loc)\b([^\n]*)")
_SECTION = re.compile(r"\.section\b[^{]*\{[^}]*\}")
_ENTRY = re.compile(r"(?:\.visible\s+)?\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{")
_SHARED = re.compile(r"\.extern\s+\.shared\s+(?:\.align\s+\d+\s+)?\.b8\s+([\w$]+)\[\]\s*;")
_LABEL = re.compile(r"([%$\w]+)\s*:(?!:)")
_STATEMENT = re.compile(r"[^;]*;")
_LOC = re.compile(r"\s*(\d+) (\d+) (\d+)(?:.*inlined_at (\d+) (\d+) (\d+))?")
_FILE = re.compile(r'\s*(\d+)\s+"([^"]*)"')
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)*(?:\.align\s+\d+\s+)?)?"
    r"([\w$]+)(?:\[(\d+)\])?$"
)
_REGISTERS = re.compile(r"([%$\w]+)(?:<(\d+)>)?$")
_GUARD = re.compile(r"@(!?)([%$\w]+)\s+")
_OPCODE = re.compile(r"[a-z][\w.:]*")
_TOKEN = re.compile(
    r"\s*(?:(?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|-?\d+\.\d*(?:[eE][-+]?\d+)?)"
    r"|(?P<int>-?(?:0[xX][0-9a-fA-F]+|\d+)U?)"
    r"|(?P<name>[%$_A-Za-z][%$\w.]*)"
    r"|(?P<mark>[][{}|,!+]))"
)


def parse(ptx: str, entry: str | None = None) -> Kernel:
    """Parse the kernel ``entry`` of a PTX module, by default its only one.

    Raises ValueError if there is no such entry or several to choose from, UnsupportedPtx for
    directives and operand forms that are not modelled.
    """
    kernels = _Parser(ptx).module()
    if entry is None and len(kernels) != 1:
        raise ValueError(f"entry must be named, the PTX has {sorted(kernels) or 'none'}")
    if entry is not None and entry not in kernels:
        raise ValueError(f"no entry {entry!r} in the PTX, which has {sorted(kernels) or 'none'}")
    return kernels[entry] if entry is not None else next(iter(kernels.values()))


class _Scope:
    """Names declared between a pair of braces."""

    def __init__(self, number: int, first: int):
        self.number = number
        self.first = first  # index of the first instruction inside
        self.registers: dict[str, Register] = {}
        self.families: dict[str, tuple[str, int]] = {}  # %r<100> -> "%r": ("b32", 100)
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.position = 0
        self.counted_to, self.counted_lines = 0, 1
        self.files: dict[int, str] = {}
        self.shared: set[str] = set()

    # Module level

    def module(self) -> dict[str, Kernel]:
        for number, path in _FILE.findall("\n".join(self._file_directives())):
            self.files[int(number)] = path
        kernels = {}
        while self._skip():
            if self._match(_LINE_DIRECTIVE) or self._match(_SECTION):
                continue
            if m := self._match(_SHARED):
                self.shared.add(m[1])
            elif m := self._match(_ENTRY):
                kernels[m[1]] = self._kernel(*m.groups())
            else:
                raise UnsupportedPtx(f"PTX line {self._line()}: {self._rest_of_line()}")
        return kernels

    def _file_directives(self) -> list[str]:
        # .file comes after the kernels that refer to it.
        return re.findall(r"^\s*\.file\b([^\n]*)", self.text, re.M)

    def _kernel(self, name: str, parameters: str, directives: str) -> Kernel:
        self.parameters = self._parse_parameters(parameters)
        self.symbols = self.shared | {p.name for p in self.parameters}
        self.instructions: list[Instruction] = []
        self.source: SourceLine | None = None
        self.sources: dict[tuple[str, ...], SourceLine] = {}
        self.scopes = [_Scope(0, 0)]
        self.scope_count = 1
        while self.scopes:
            self._body_item()
        threads, cluster = self._extents(directives)
        instructions = tuple(self.instructions)
        return Kernel(name, self.parameters, tuple(self.shared), threads, cluster, instructions)

    def _parse_parameters(self, text: str) -> tuple[Parameter, ...]:
        parameters, offset = [], 0
        for declaration in filter(None, (part.strip() for part in text.split(","))):
            m = _PARAM.match(declaration)
            if m is None or m[2] not in SCALAR_BYTES:
                raise UnsupportedPtx(f"parameter {declaration!r} before PTX line {self._line()}")
            nbytes = SCALAR_BYTES[m[2]] * int(m[4] or 1)
            align = int(m[1] or SCALAR_BYTES[m[2]])
            offset = -(-offset // align) * align
            parameters.append(Parameter(m[3], nbytes, offset))
            offset += nbytes
        return tuple(parameters)

    def _extents(self, directives: str) -> tuple[int, tuple[int, int, int]]:
        """Threads of a CTA, and CTAs of a cluster."""
        threads, cluster = 0, (1, 1, 1)
        for name, arguments in re.findall(r"\.(\w+)\s*([\d, ]*)", _SKIP.sub(" ", directives)):
            extents = [int(n) for n in re.findall(r"\d+", arguments)]
            if name == "reqntid" and extents[1:] in ([], [1], [1, 1]):
                threads = extents[0]
            elif name == "reqnctapercluster" and len(extents) <= 3:
                cluster = (*extents, 1, 1)[:3]
            elif name not in ("explicitcluster", "maxnreg", "minnctapersm", "noreturn"):
                raise UnsupportedPtx(f"kernel directive .{name} {arguments}".rstrip())
        if not 32 <= threads <= 1024 or threads % 32:
            raise UnsupportedPtx(f"a kernel needs .reqntid of whole warps up to 1024: {threads}")
        return threads, cluster

    # Kernel body

    def _body_item(self) -> None:
        if not self._skip():
            raise UnsupportedPtx("the PTX ends inside a kernel")
        if self._match_text("{"):
            self.scopes.append(_Scope(self.scope_count, len(self.instructions)))
            self.scope_count += 1
        elif self._match_text("}"):
            self._close(self.scopes.pop())
        elif m := self._match(_LINE_DIRECTIVE):
            self._line_directive(m)
        elif m := self._match(_LABEL):
            self._label(m[1])
        else:
            line = self._line()
            self._statement(self._match(_STATEMENT), line)

    def _line_directive(self, m: re.Match) -> None:
        if m[1] != "loc":
            raise UnsupportedPtx(f"PTX line {self._line()}: .{m[1]} inside a kernel")
        file, line, column, *caller = _LOC.match(m[2]).groups()
        # The caller's own .loc, with its own inlined_at, has come before.
        inlined_at = self.sources.get(tuple(caller))
        if int(line):  # line 0: no source line
            path = self.files.get(int(file), f"file {file}")
            self.source = SourceLine(path, int(line), inlined_at)
            self.sources[file, line, column] = self.source

    def _label(self, name: str) -> None:
        scope = self.scopes[-1]
        if name in scope.labels:
            raise UnsupportedPtx(f"PTX line {self._line()}: label {name} is declared twice")
        scope.labels[name] = len(self.instructions)
        self._skip()
        if self.text.startswith(".branchtargets", self.position):
            text = self._match(_STATEMENT)[0]
            scope.tables[name] = tuple(re.findall(r"[%$\w]+", text.split(None, 1)[1]))

    def _statement(self, m: re.Match | None, line: int) -> None:
        if m is None:
            raise UnsupportedPtx(f"PTX line {line}: {self._rest_of_line()}")
        text = _SKIP.sub(" ", m[0][:-1]).strip()
        if not text:
            return
        if text.startswith(".reg"):
            self._declare(text, line)
            return
        try:
            self.instructions.append(self._instruction(text, line))
        except UnsupportedPtx as e:
            raise UnsupportedPtx(f"{e}\n  PTX line {line}: {text} ({self.source})") from None

    def _declare(self, text: str, line: int) -> None:
        _, kind, names = text.split(None, 2)
        kind, scope = kind.lstrip("."), self.scopes[-1]
        for name in names.split(","):
            m = _REGISTERS.match(name.strip())
            if m is None or (kind != "pred" and kind not in SCALAR_BYTES):
                raise UnsupportedPtx(f"PTX line {line}: {text}")
            if m[2]:
                scope.families[m[1]] = kind, int(m[2])
            else:
                suffix = f"@{scope.number}" if scope.number else ""
                scope.registers[m[1]] = Register(m[1] + suffix, kind)

    def _close(self, scope: _Scope) -> None:
        """Resolve branches to this scope's labels; others may be of an outer scope."""
        for i in range(scope.first, len(self.instructions)):
            instruction = self.instructions[i]
            if not instruction.opcode.startswith(("bra", "brx")):
                continue
            operands = []
            for operand in instruction.operands:
                if isinstance(operand, Label) and not operand.targets:
                    names = scope.tables.get(operand.name, (operand.name,))
                    if all(name in scope.labels for name in names):
                        operand = Label(operand.name, tuple(scope.labels[name] for name in names))
                    elif not self.scopes:
                        raise UnsupportedPtx(f"undeclared label {operand.name}, {instruction}")
                operands.append(operand)
            self.instructions[i] = replace(instruction, operands=tuple(operands))

    # Instructions

    def _instruction(self, text: str, line: int) -> Instruction:
        rest, guard = text, None
        if m := _GUARD.match(text):
            register = self._lookup(m[2])
            if register is None:
                raise UnsupportedPtx(f"undeclared guard {m[2]}")
            guard = Negated(register) if m[1] else register
            rest = text[m.end() :]
        opcode = _OPCODE.match(rest)
        if opcode is None:
            raise UnsupportedPtx("not an instruction")
        operands = _Operands(rest[opcode.end() :], self).all()
        return Instruction(opcode[0], operands, guard, line, text, self.source)

    def _lookup(self, name: str) -> Register | None:
        for scope in reversed(self.scopes):
            register = scope.registers.get(name)
            if register is not None:
                return register
            family = name.rstrip("0123456789")
            if family in scope.families and family != name:
                kind, count = scope.families[family]
                if int(name[len(family) :]) < count:
                    suffix = f"@{scope.number}" if scope.number else ""
                    register = scope.registers[name] = Register(name + suffix, kind)
                    return register
        return None

    # Text

    def _skip(self) -> bool:
        """Pass over blanks and comments; whether anything follows."""
        if m := _SKIP.match(self.text, self.position):
            self.position = m.end()
        return self.position < len(self.text)

    def _match(self, pattern: re.Pattern) -> re.Match | None:
        m = pattern.match(self.text, self.position)
        if m:
            self.position = m.end()
        return m

    def _match_text(self, text: str) -> bool:
        found = self.text.startswith(text, self.position)
        self.position += len(text) if found else 0
        return found

    def _line(self) -> int:
        self.counted_lines += self.text.count("\n", self.counted_to, self.position)
        self.counted_to = self.position
        return self.counted_lines

    def _rest_of_line(self) -> str:
        return self.text[self.position :].split("\n", 1)[0].strip()


class _Operands:
    """Recursive descent over the operands of one instruction."""

    def __init__(self, text: str, names: _Parser):
        self.names = names
        self.tokens: list[tuple[str, str]] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            m = _TOKEN.match(text, position)
            if m is None:
                raise UnsupportedPtx(f"unknown operand {text[position:].strip()!r}")
            self.tokens.append((m.lastgroup, m[m.lastgroup]))
            position = m.end()
        self.tokens.append(("end", ""))
        self.next = 0

    def all(self) -> tuple[Operand, ...]:
        if self._at("end"):
            return ()
        operands = self._list()
        self._expect("end", "")
        return operands

    def _list(self) -> tuple[Operand, ...]:
        operands = [self._operand()]
        while self._accept(","):
            operands.append(self._operand())
        return tuple(operands)

    def _operand(self) -> Operand:
        if self._accept("["):
            return self._address()
        operand = self._simple()
        return Pair(operand, self._simple()) if self._accept("|") else operand

    def _address(self) -> Address:
        base, offset, coordinates = self._simple(), 0, None
        if self._accept("+"):
            offset = self._integer()
        elif self._at("int") and self.tokens[self.next][1].startswith("-"):
            offset = self._integer()
        elif self._accept(","):
            coordinates = self._simple()
            if not isinstance(coordinates, Vector):
                raise UnsupportedPtx("tensor coordinates must be a vector")
        self._expect("mark", "]")
        return Address(base, offset, coordinates)

    def _simple(self) -> Operand:
        if self._accept("{"):
            elements = self._list()
            self._expect("mark", "}")
            return Vector(elements)
        if self._accept("!"):
            register = self._simple()
            if not isinstance(register, Register):
                raise UnsupportedPtx("! must precede a predicate register")
            return Negated(register)
        kind, text = self.tokens[self.next]
        if kind == "name":
            self.next += 1
            return self._name(text)
        if kind == "float":
            self.next += 1
            if "." in text:
                return Immediate(float(text))
            bits = bytes.fromhex(text[2:])
            return Immediate(struct.unpack(">f" if len(bits) == 4 else ">d", bits)[0])
        return Immediate(self._integer())

    def _name(self, name: str) -> Operand:
        if name == "_":
            return Sink()
        if (register := self.names._lookup(name)) is not None:
            return register
        if name in self.names.symbols:
            return Symbol(name)
        return Special(name) if name.startswith("%") else Label(name)

    def _integer(self) -> int:
        kind, text = self.tokens[self.next]
        if kind != "int":
            raise UnsupportedPtx(f"unexpected {text or 'end'!r} among the operands")
        self.next += 1
        text = text.rstrip("U")
        octal = len(text) > 1 and text.startswith("0") and text.isdecimal()
        return int(text, 8 if octal else 0)

    def _at(self, kind: str) -> bool:
        return self.tokens[self.next][0] == kind

    def _accept(self, mark: str) -> bool:
        found = self.tokens[self.next] == ("mark", mark)
        self.next += found
        return found

    def _expect(self, kind: str, text: str) -> None:
        if self.tokens[self.next] != (kind, text):
            raise UnsupportedPtx(f"expected {text or 'no more operands'!r}")
        self.next += 1
