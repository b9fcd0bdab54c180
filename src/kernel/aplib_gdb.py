# SPDX-License-Identifier: MIT
"""gdb commands for programs that run on APlib: aplib cells, tasks, bt, in, globals, print. docs/debugging.md shows
them.

gdb loads this file by itself along with libaplib.so if it lies beside it under the name libaplib.so.<version>-gdb.py,
in a folder that gdb trusts (add-auto-load-safe-path). It works on live processes and on core files, with and without
debug information of APlib: where things are is said by the exported variables of src/kernel/debugger.hpp. It changes
nothing in the process.
"""

import re

import gdb
from gdb.unwinder import Unwinder

WORD = 8
# Boost.Context, x86-64: the order in which the registers of a parked flow are saved.
SAVED = ("r12", "r13", "r14", "r15", "rbx", "rbp", "rip")
# lea 0x80(%rsp),%rsp: the first instruction of a resumed flow, in builds that keep off the red zone while they switch.
LEA_RED_ZONE = bytes.fromhex("488da42480000000")
RED_ZONE = 128


class Memory:
    """The process's memory, by address."""

    def bytes(self, address, size):
        return bytes(gdb.selected_inferior().read_memory(address, size))

    def number(self, address, size):
        return int.from_bytes(self.bytes(address, size), "little")

    def word(self, address):
        return self.number(address, WORD)

    def text(self, address, longest=64):
        found = b""
        while address and b"\0" not in found and len(found) < longest:
            here = address + len(found)
            found += self.bytes(here, min(64, 4096 - here % 4096))  # never into a page that may not be there
        return found.split(b"\0")[0].decode(errors="replace")


memory = Memory()


def address_of(symbol):
    try:
        return int(gdb.parse_and_eval(f"(unsigned long)&{symbol}"))
    except gdb.error:
        raise gdb.GdbError(
            f"aplib: no symbol {symbol}: no program runs that uses APlib (libaplib.so is not loaded, or stripped of its"
            " dynamic symbols)"
        )


def read_layout():
    """The exported table of names and numbers."""
    entry = memory.word(address_of("aplib_debugger_layout"))
    layout = {}
    while entry and memory.word(entry):
        layout[memory.text(memory.word(entry))] = memory.word(entry + WORD)
        entry += 2 * WORD
    if not layout:
        raise gdb.GdbError("aplib: no machine has been made yet; run the program up to a breakpoint in a cell")
    return layout


class Structure:
    """Something of APlib's at an address: members are read by the names of the layout."""

    kind = ""

    def __init__(self, layout, address):
        self.layout, self.address = layout, address

    def place(self, member):
        return self.address + self.layout[f"{self.kind}.{member}"]

    def number(self, member, size=4):
        return memory.number(self.place(member), size)

    def pointer(self, member):
        return memory.word(self.place(member))

    def elements(self, member):
        """The pointers in a std::vector."""
        begin, end = memory.word(self.place(member)), memory.word(self.place(member) + WORD)
        count = (end - begin) // WORD
        block = memory.bytes(begin, count * WORD) if count else b""
        return [int.from_bytes(block[i * WORD:(i + 1) * WORD], "little") for i in range(count)]


class Task(Structure):
    kind = "task"

    def __init__(self, layout, address, cell):
        super().__init__(layout, address)
        self.cell = cell

    @property
    def id(self):
        return self.number("id")

    @property
    def name(self):
        return f"{self.cell.visible_id}.{self.id}"

    def thread(self, places):
        """The thread that is on the task's stack now, or None. `places`: of stack_pointers()."""
        low, top = self.pointer("stack_low"), self.pointer("stack_top")
        for thread, place in places:
            if low <= place < top:
                return thread
        return None

    def source(self):
        """The messages that it waits for, in words."""
        key, mask = self.number("wish_key", WORD), self.number("wish_mask", WORD)

        def part(name, convert=lambda number: number):
            bits, shift = self.layout[f"key.{name}_mask"], self.layout.get(f"key.{name}_shift", 0)
            return f"{name} {convert((key & bits) >> shift)}" if mask & bits else f"any {name}"

        domain = self.cell.domain
        return ", ".join((part("cell", domain.visible), part("task"), part("type")))

    def state(self):
        if self.number("ended", 1):
            return "ended"
        waits = self.number("waits", 1)
        if self.number("ready", 1):
            return "ready"
        call = memory.text(self.pointer("call"))
        wait = {
            self.layout[f"wait.{name}"]: name
            for name in (
                "nothing",
                "message",
                "requests",
                "collective",
                "task_end",
                "time",
                "cells_end",
                "flag",
                "condition",
                "room",
            )
        }.get(waits)
        return {
            "nothing": "running",
            "message": f"waits in {call} for a message from {self.source()}",
            "requests": f"waits in {call} for its requests",
            "collective": f"waits in {call} for other cells",
            "task_end": f"waits in {call} for the end of task {self.number('wait_task')}",
            "time": f"sleeps in {call}",
            "cells_end": f"waits in {call} for the end of all cells",
            "flag": f"waits in {call} for a flag",
            "condition": f"waits in {call} for other tasks",
            "room": f"waits in {call} for messages to be received",
        }.get(wait, "in an unknown state")

    def registers(self):
        """Name to value, as the task will find them when it goes on."""
        offset = self.layout["context.registers"]
        context = self.pointer("context")
        if offset >= 1 << 32:
            raise gdb.GdbError("aplib: stacks of parked tasks can be shown on x86-64 only")
        if context == 0:
            raise gdb.GdbError(f"aplib: task {self.name} has not been switched away from")
        saved = {name: memory.word(context + offset + i * WORD) for i, name in enumerate(SAVED)}
        saved["rsp"] = context + offset + len(SAVED) * WORD
        if memory.bytes(saved["rip"], len(LEA_RED_ZONE)) == LEA_RED_ZONE:
            saved["rsp"] += RED_ZONE
        return saved


class Cell(Structure):
    kind = "cell"

    def __init__(self, layout, address, domain):
        super().__init__(layout, address)
        self.domain = domain

    @property
    def visible_id(self):
        return self.domain.visible(self.number("id"))

    def is_host(self):
        return self.number("id") == self.domain.number("cell_count")

    def tasks(self):
        return [Task(self.layout, address, self) for address in self.elements("tasks") if address]


class Domain(Structure):
    kind = "domain"

    def visible(self, cell):
        return self.number("host_id") if cell == self.number("cell_count") else cell

    def cells(self):
        found = [Cell(self.layout, address, self) for address in self.elements("cells") if address]
        return found if self.number("has_host", 1) else [cell for cell in found if not cell.is_host()]


def domains():
    layout = read_layout()
    machine = memory.word(address_of("aplib_debugger_machines"))
    while machine:
        domain = memory.word(machine + layout["machine.domain"])
        if domain:
            yield Domain(layout, domain)
        machine = memory.word(machine + layout["machine.next"])


def all_cells():
    cells = [cell for domain in domains() for cell in domain.cells()]
    if not cells:
        raise gdb.GdbError("aplib: no machine runs now")
    return cells


def stack_pointers():
    """Each thread with its stack pointer."""
    selected, frame = gdb.selected_thread(), None
    if selected is None:
        return []
    try:
        frame = gdb.selected_frame()
    except gdb.error:
        pass
    found = []
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        found.append((thread, int(gdb.newest_frame().read_register("rsp"))))
    selected.switch()
    if frame is not None and frame.is_valid():
        frame.select()
    return found


def find_task(name):
    match = re.fullmatch(r"(\d+)\.(\d+)", name)
    if not match:
        raise gdb.GdbError(f"aplib: '{name}' is no task; write CELL.TASK, as 'aplib tasks' shows them")
    number, task_id = map(int, match.groups())
    for cell in all_cells():
        if cell.visible_id != number:
            continue
        for task in cell.tasks():
            if task.id == task_id:
                return task
        raise gdb.GdbError(f"aplib: cell {number} has no task {task_id}; 'aplib tasks {number}' lists them")
    raise gdb.GdbError(f"aplib: there is no cell {number}; 'aplib cells' lists them")


class ParkedUnwinder(Unwinder):
    """While `registers` are given, the caller of the selected thread's innermost frame is a parked task, so gdb walks
    that task's stack. No register of the process is touched, hence it works on core files too."""

    def __init__(self):
        super().__init__("aplib-parked-task")
        self.registers = None
        self.innermost = None

    def __call__(self, pending):
        if self.registers is None:
            return None
        here = (int(pending.read_register("rsp")), int(pending.read_register("rip")))
        if here != self.innermost:
            return None

        class Id:
            # Below the task's frames, or gdb would think the stack corrupt.
            sp = gdb.Value(self.registers["rsp"] - 2 * WORD)
            pc = pending.read_register("rip")

        info = pending.create_unwind_info(Id)
        for name, value in self.registers.items():
            kind = pending.read_register(name).type
            info.add_saved_register(name, gdb.Value(value).cast(kind))
        return info


parked = ParkedUnwinder()
gdb.unwinder.register_unwinder(None, parked, replace=True)


def on_task(task, action):
    """action(frame): with the task's stack in gdb's eyes that of the selected thread; `frame` is the task's
    innermost."""
    thread = task.thread(stack_pointers())
    selected, frame = gdb.selected_thread(), gdb.selected_frame()
    try:
        if thread is not None:
            thread.switch()
            return action(gdb.newest_frame())
        newest = gdb.newest_frame()
        parked.innermost = (int(newest.read_register("rsp")), int(newest.read_register("rip")))
        parked.registers = task.registers()
        gdb.invalidate_cached_frames()
        first = gdb.newest_frame().older()
        if first is None:
            raise gdb.GdbError(
                f"aplib: gdb cannot walk the stack of task {task.name}:"
                f" {gdb.frame_stop_reason_string(gdb.newest_frame().unwind_stop_reason())}"
            )
        return action(first)
    finally:
        parked.registers = None
        gdb.invalidate_cached_frames()
        selected.switch()
        if frame.is_valid():
            frame.select()


def table(rows):
    """Columns of equal width, two spaces apart; the last one as it is."""
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        print("  ".join([str(text).ljust(width) for text, width in zip(row, widths)] + [str(row[-1])]).rstrip())


class Aplib(gdb.Command):
    """Cells and tasks of a program that runs on APlib."""

    def __init__(self):
        super().__init__("aplib", gdb.COMMAND_STACK, prefix=True)

    def invoke(self, argument, from_tty):
        gdb.execute("help aplib")


class Cells(gdb.Command):
    """Lists cells: number, place in the grid, processor that carries it, live tasks, whether it has ended, exit status.
Usage: aplib cells"""

    def __init__(self):
        super().__init__("aplib cells", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        rows = [("cell", "place", "processor", "tasks", "state", "status")]
        for cell in all_cells():
            processors = cell.domain.elements("processors")
            carrier = cell.pointer("processor")
            rows.append((
                cell.visible_id,
                "host" if cell.is_host() else f"{cell.number('x')},{cell.number('y')}",
                processors.index(carrier) if carrier in processors else "-",
                cell.number("live_tasks"),
                "ended" if cell.number("ended", 1) else "runs" if cell.number("live_tasks") else "not started",
                cell.number("status")))
        table(rows)


class Tasks(gdb.Command):
    """Lists tasks: cell and task number, the gdb thread that is on its stack, what it does or waits for.
Usage: aplib tasks [CELL]"""

    def __init__(self):
        super().__init__("aplib tasks", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        wanted = argument.strip()
        rows = [("task", "thread", "state")]
        places = stack_pointers()
        for cell in all_cells():
            if wanted and str(cell.visible_id) != wanted:
                continue
            for task in cell.tasks():
                thread = task.thread(places)
                rows.append((task.name, thread.num if thread else "-", task.state()))
        if wanted and len(rows) == 1:
            print(f"No tasks in cell {wanted}.")
            return
        table(rows)


class Backtrace(gdb.Command):
    """Prints the stack of a task, also of one that waits and whose stack no thread is on. Of a loaded program it ends
with the program's outermost frame; 'aplib in CELL.TASK 0 backtrace' shows what lies below.
Usage: aplib bt CELL.TASK [OPTIONS OF backtrace]
Example: aplib bt 3.0 -full"""

    def __init__(self):
        super().__init__("aplib bt", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        name, _, options = argument.strip().partition(" ")
        task = find_task(name)
        print(f"Task {task.name}: {task.state()}")

        def show(first):
            skipped = first.level()
            outermost = self.outermost(first)
            text = gdb.execute(f"backtrace {options}", to_string=True)
            bottom = re.search(rf"^#{outermost + 1} ", text, re.MULTILINE) if outermost is not None else None
            text = text[: bottom.start()] if bottom else text
            if skipped:  # the frame of the thread that we borrowed
                text = (
                    text[re.search(r"^#1 ", text, re.MULTILINE).start() :]
                    if re.search(r"^#1 ", text, re.MULTILINE)
                    else ""
                )
                text = re.sub(
                    r"^#(\d+)( *)",
                    lambda match: f"#{int(match[1]) - skipped}".ljust(len(match[0])),
                    text,
                    flags=re.MULTILINE,
                )
            bottom = re.search(r"^#\d+ .* in make_fcontext ", text, re.MULTILINE)  # from here on it is Boost's
            print(text[: bottom.start()] if bottom else text, end="")

        on_task(task, show)

    @staticmethod
    def outermost(frame):
        """Level of the outermost frame of a loaded program, or None."""
        paths, found = {image.path for image in images()}, None
        while frame is not None:
            if gdb.solib_name(frame.pc()) in paths:
                found = frame.level()
            frame = frame.older()
        return found


class In(gdb.Command):
    """Executes a command in a frame of a task. Frames are numbered as by 'aplib bt'.
Usage: aplib in CELL.TASK FRAME COMMAND
Example: aplib in 3.0 4 info locals"""

    def __init__(self):
        super().__init__("aplib in", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        words = argument.strip().split(None, 2)
        if len(words) < 3 or not words[1].isdigit():
            raise gdb.GdbError("Usage: aplib in CELL.TASK FRAME COMMAND")

        def execute(frame):
            for _ in range(int(words[1])):
                frame = frame.older()
                if frame is None:
                    raise gdb.GdbError(f"aplib: task {words[0]} has no frame {words[1]}")
            frame.select()
            gdb.execute(words[2], from_tty)

        on_task(find_task(words[0]), execute)


class Image:
    """A file at its place in an instance."""

    def __init__(self, base, path):
        self.base, self.path = base, path

    @property
    def owner(self):
        layout = read_layout()
        base, distance = layout["slot.base"], layout["slot.distance"]
        if not base or self.base < base or (self.base - base) // distance >= 1 << 17:
            return f"instance at {self.base:#x}"
        slot = (self.base - base) // distance
        return "host program" if slot == layout["slot.host"] else f"cell {slot}"


def images():
    """Images of all instances, by address: the list that gdb has them from, a link_map each."""
    space = memory.word(address_of("aplib_debugger_counts") + 3 * WORD)
    entry = memory.word(space + WORD) if space else 0
    found = []
    while entry:
        found.append(Image(memory.word(entry), memory.text(memory.word(entry + WORD), 4096)))
        entry = memory.word(entry + 3 * WORD)
    return sorted(found, key=lambda image: image.base)


def image_at(address, known):
    below = [image for image in known if image.base <= address]
    return below[-1] if below else None


def place_in(image, symbol, known):
    """Where a global variable that is defined in the image's file is in the image; None if it is in another file. gdb
    gives the address in one of the instances (gdb 13 in the first, whichever it is asked about), and the distance
    from the image's base is the same in all."""
    place = int(symbol.value().address)
    home = image_at(place, known)
    return place - home.base + image.base if home is not None and home.path == image.path else None


def is_global(symbol):
    return symbol is not None and symbol.is_variable and symbol.addr_class == gdb.SYMBOL_LOC_STATIC


class Globals(gdb.Command):
    """Prints a global variable of every instance of the loaded programs.
Usage: aplib globals NAME"""

    def __init__(self):
        super().__init__("aplib globals", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        name = argument.strip()
        if not name:
            raise gdb.GdbError("Usage: aplib globals NAME")
        known, symbols, found = images(), {}, 0
        for objfile in gdb.objfiles():
            symbol = objfile.lookup_global_symbol(name) or objfile.lookup_static_symbol(name)
            if is_global(symbol):
                symbols.setdefault(objfile.filename, symbol)
        for image in known:
            symbol = symbols.get(image.path)
            place = place_in(image, symbol, known) if symbol is not None else None
            if place is not None:
                value = gdb.Value(place).cast(symbol.type.pointer()).dereference()
                print(f"{image.owner}: {name} = {value.format_string()}")
                found += 1
        if not found:
            raise gdb.GdbError(
                f"aplib: no instance has a global '{name}' that gdb knows; were the programs compiled with -g?"
            )
        counts = address_of("aplib_debugger_counts")
        left_out = memory.word(counts + WORD)
        if left_out:
            print(
                f"{left_out} more images are not shown to gdb; APLIB_DEBUGGER_IMAGES, now"
                f" {memory.word(counts + 2 * WORD)}, says how many are."
            )


class Print(gdb.Command):
    """Prints an expression with the global variables of the instance that the selected frame belongs to. gdb 13's own
'print' takes those that other files can see (not static, not hidden) from the first instance.
Usage: aplib print EXPRESSION"""

    def __init__(self):
        super().__init__("aplib print", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        known = images()
        image = image_at(gdb.selected_frame().pc(), known)
        solib = gdb.solib_name(gdb.selected_frame().pc())
        if image is None or image.path != solib:
            gdb.execute(f"print {argument}", from_tty)
            return

        def replace(match):
            name = match[0]
            try:
                symbol = gdb.lookup_symbol(name)[0]
            except gdb.error:
                return name
            place = place_in(image, symbol, known) if is_global(symbol) else None
            if place is None:
                return name
            variable = f"aplib_place_of_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
            gdb.set_convenience_variable(variable, gdb.Value(place).cast(symbol.type.pointer()))
            return f"(*${variable})"

        # Names, but not members and not parts of numbers or strings.
        parts = re.split(r'("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')', argument)
        parts[::2] = [re.sub(r"(?<![\w.$>:])[A-Za-z_]\w*(?:::\w+)*", replace, part) for part in parts[::2]]
        gdb.execute("print " + "".join(parts), from_tty)


for command in (Aplib, Cells, Tasks, Backtrace, In, Globals, Print):
    command()
