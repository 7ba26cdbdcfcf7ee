"""Printers for ndarc handles.

    (gdb) source tools/gdb/ndarc_gdb.py
    (gdb) print w
    $1 = tensor(w1) f32 [128, 64] on cpu:0, count 2, in manager epoch, made at train.c:88, at 0x55d0...

A pointer to any ndarc object prints as type, name, count, manager and creation site; `print *w` still shows the
fields. The header of an object is read as raw memory, so type, name, count and site are shown in a program whose
library has no debug information; shape, dtype and the manager's name need it (struct nd_tensor, struct nd_manager).
Memory is only read: no function of the program is called, so this works on core files, too.
"""

import struct

import gdb

HANDLES = {
    "nd_object", "nd_tensor", "nd_manager", "nd_weak", "nd_list", "nd_map", "nd_resource", "nd_node", "nd_module", "nd_optimizer",
    "nd_dataset", "nd_storage", "nd_accounted", "nd_schedule", "nd_ema", "nd_loss_scaler", "nd_state", "nd_gguf", "nd_communicator", "nd_data_parallel",
    "nd_stream", "nd_event", "nd_graph",
}

# struct nd_object: word, type, shard, previous, next, site, flags, gc_index. Its size is checked by a
# static assertion beside its definition.
HEADER = struct.Struct("=QQQQQQII")
TYPE_NAME_OFFSET = 8
HOME_MANAGER_OFFSET = 32  # struct nd_shard, checked likewise
WATCH_BIAS = 0x80000000
FLAG_TRACKED, FLAG_CLOSED, FLAG_DYING, FLAG_NAMED = 1 << 0, 1 << 1, 1 << 2, 1 << 4
TYPE_TENSOR, TYPE_ACCOUNTED, TYPE_MANAGER = 1 << 8, 1 << 9, 1 << 10
LONGEST_TEXT = 256


def read(address, size):
    return gdb.selected_inferior().read_memory(address, size).tobytes()


def read_word(address):
    return struct.unpack("=Q", read(address, 8))[0]


def read_text(address):
    """The string at an address, read to the end of its page at most at a time."""
    text = b""
    while len(text) < LONGEST_TEXT:
        piece = read(address + len(text), min(16, 4096 - (address + len(text)) % 4096))
        end = piece.find(b"\0")
        if end >= 0:
            text += piece[:end]
            break
        text += piece
    return text.decode("utf-8", "replace")


def type_or_none(name):
    try:
        found = gdb.lookup_type(name)
    except gdb.error:
        return None
    return found if found.fields() else None


class Header:
    """What every object begins with."""

    def __init__(self, address):
        (word, self.type, shard, _, _, self.site, self.flags, _) = HEADER.unpack(read(address, HEADER.size))
        self.address = address
        self.manager = read_word(shard + HOME_MANAGER_OFFSET) if shard else 0
        self.count = word & (WATCH_BIAS - 1)
        self.watched = (word & WATCH_BIAS) != 0
        self.type_flags = struct.unpack("=I", read(self.type + 16, 4))[0]
        self.type_name = read_text(read_word(self.type + TYPE_NAME_OFFSET))

    def name(self):
        """From the library's table of names, a hash table of {next, object, text}."""
        if not self.flags & FLAG_NAMED:
            return ""
        table = int(gdb.parse_and_eval("*(unsigned long *)&name_places"))
        bits = int(gdb.parse_and_eval("*(unsigned *)&name_place_bits"))
        key = (self.address >> 6) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        entry = read_word(table + 8 * (key >> (64 - bits)))
        while entry:
            following, owner = struct.unpack("=QQ", read(entry, 16))
            if owner == self.address:
                return read_text(entry + 16)
            entry = following
        return ""

    def site_text(self):
        if not self.site:
            return ""
        file, line = struct.unpack("=QI", read(self.site, 12))
        return "%s:%d" % (read_text(file), line)


def structure(address, name):
    found = type_or_none("struct " + name) or type_or_none(name)
    return gdb.Value(address).cast(found.pointer()).dereference() if found else None


def manager_name(address):
    manager = structure(address, "nd_manager")
    return manager["name"].string() if manager is not None else "0x%x" % address


def lower_name(value, prefix):
    """"f32" for ND_F32; enums of the public headers."""
    text = str(value)
    return text[len(prefix):].lower() if text.startswith(prefix) else text


def requires_grad(tensor):
    """A recorded view keeps an edge to the base whose history is its own (lib/tensor/rebase.h)."""
    base = tensor["base"]
    return bool((base.dereference() if int(base) else tensor)["own_flags"] & 1)


def tensor_details(address):
    tensor = structure(address, "nd_tensor")
    if tensor is None:
        return ""
    shape = ", ".join(str(int(tensor["shape"][i])) for i in range(int(tensor["ndim"])))
    text = " %s [%s] on %s:%d" % (lower_name(tensor["dtype"], "ND_"), shape, lower_name(tensor["device"]["kind"], "ND_"),
                                  int(tensor["device"]["index"]))
    if requires_grad(tensor):
        text += ", requires grad"
    if int(tensor["grad"]):
        text += ", has grad"
    if int(tensor["node"]):
        text += ", computed"
    return text


def accounted_details(address, is_tensor):
    """A tensor has bytes of its own, or its storage has them."""
    accounted = structure(address, "nd_accounted")
    if accounted is None or (is_tensor and not int(accounted["bytes"])):
        return ""
    return " of %d bytes on %s" % (int(accounted["bytes"]), lower_name(accounted["kind"], "ND_"))


def describe(address):
    header = Header(address)
    if header.type_flags & TYPE_MANAGER:
        return "manager %s, count %d, at 0x%x" % (manager_name(address), header.count, address)
    text = header.type_name
    name = header.name()
    if name:
        text += "(%s)" % name
    if header.type_flags & TYPE_TENSOR:
        text += tensor_details(address)
    if header.type_flags & TYPE_ACCOUNTED:
        text += accounted_details(address, bool(header.type_flags & TYPE_TENSOR))
    text += ", count %d" % header.count
    if header.flags & FLAG_CLOSED:
        text += ", closed"
    if header.flags & FLAG_DYING:
        text += ", garbage"
    if header.watched:
        text += ", watched"
    text += ", in manager %s" % manager_name(header.manager) if header.manager else ", in no manager"
    site = header.site_text()
    if site:
        text += ", made at %s" % site
    return text + ", at 0x%x" % address


class HandlePrinter:
    """A pointer to an object."""

    def __init__(self, value):
        self.address = int(value)

    def to_string(self):
        if self.address == 0:
            return "NULL"
        try:
            return describe(self.address)
        except (gdb.error, UnicodeDecodeError) as error:
            return "0x%x (no object: %s)" % (self.address, error)


def printer_of(value):
    kind = value.type.strip_typedefs()
    if kind.code != gdb.TYPE_CODE_PTR:
        return None
    target = kind.target().unqualified()
    names = {target.name, target.strip_typedefs().tag, target.strip_typedefs().name}
    return HandlePrinter(value) if names & HANDLES else None


gdb.pretty_printers.append(printer_of)
