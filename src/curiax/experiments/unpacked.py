"""How large a Parquet table becomes in memory, from its footer and its pages' headers, before anything is unpacked.

A few bytes can stand for any number of equal values, and Polars tells how many there are in a column of lists only when
it has them all in memory. So the headers are read here, in Thrift's compact protocol, as far as they say how many
values a page has and how many bytes it has once it is decompressed: https://parquet.apache.org/docs/file-format/
"""

from __future__ import annotations

from typing import Any

#: How a Parquet file begins and ends.
MAGIC = b"PAR1"
#: Bytes of a footer and of a page's header (which may hold the page's largest value), columns, and levels of nesting.
MOST_FOOTER, MOST_HEADER, MOST_COLUMNS, MOST_LEVELS = 4 << 20, 64 << 10, 4096, 8
#: Bytes that a value of each of Parquet's types takes in memory: truths, numbers, and texts, of which it is a view;
#: and those that say where a row's list of them begins.
VALUE, OFFSET = {0: 1, 1: 4, 2: 8, 4: 4, 5: 8, 6: 16}, 8
#: The type whose values may be long, and the one encoding that makes long ones of nothing.
TEXT, SHARING = 6, 7
#: Types of Thrift: truths, and what one is in a list.
TRUE, FALSE, BYTE = 1, 2, 3

Fields = dict[int, Any]


class Reader:
    """Thrift's compact protocol, for as much of it as Parquet's headers use."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> memoryview:
        """The next bytes."""
        if not 0 <= count <= len(self.data) - self.at:
            raise ValueError("its headers end too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        """A whole number that is not negative, seven bits a byte."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number in its headers has no end")

    def number(self) -> int:
        """A whole number of either sign."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def value(self, kind: int, depth: int) -> Any:
        """A value of some type; of texts only that they are there."""
        match kind:
            case 1 | 2:
                return kind == TRUE
            case 3:
                return self.take(1)[0]
            case 4 | 5 | 6:
                return self.number()
            case 7:
                return self.take(8)
            case 8:
                return self.take(self.varint())
            case 9 | 10:
                return self.list(depth)
            case 12:
                return self.struct(depth)
        raise ValueError(f"its headers have a type {kind}")

    def list(self, depth: int) -> list[Any]:
        """A list; a truth in it takes a byte of its own."""
        head = self.take(1)[0]
        size, kind = head >> 4, head & 0xF
        size = self.varint() if size == 15 else size
        if size > len(self.data) - self.at:
            raise ValueError("its headers end too early")
        return [self.value(BYTE if kind in (TRUE, FALSE) else kind, depth) for _ in range(size)]

    def struct(self, depth: int = 0) -> Fields:
        """Fields by their numbers, each there once."""
        if depth > MOST_LEVELS:
            raise ValueError("its headers are nested too deeply")
        fields, number = {}, 0
        while (head := self.take(1)[0]) != 0:
            number = number + (head >> 4) if head >> 4 else self.number()
            if number in fields:
                raise ValueError("a field is twice in its headers")
            fields[number] = self.value(head & 0xF, depth + 1)
        return fields


def bytes_in_memory(data: bytes) -> int:
    """An upper bound of what a table takes once it is read; a ValueError where the headers are none."""
    view = memoryview(data)
    length = int.from_bytes(data[-8:-4], "little")
    if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC or length > min(MOST_FOOTER, len(data) - 12):
        raise ValueError("it is no Parquet file")
    footer = Reader(view[len(data) - 8 - length : len(data) - 8]).struct()
    try:
        refuse_nesting(footer[2])
        total = 0
        for group in footer[4]:
            rows = whole(group[3])
            total += sum(chunk_in_memory(view, chunk[3], rows) for chunk in group[1])
    except (KeyError, TypeError, AttributeError):
        raise ValueError("its footer lacks what every Parquet file has") from None
    return total


def refuse_nesting(schema: list[Fields]) -> None:
    """Refuse more columns than anybody has, and lists of lists of lists."""
    if len(schema) > 4 * MOST_COLUMNS:
        raise ValueError("it has too many columns")
    open_: list[int] = []
    for element in schema:
        while open_ and open_[-1] == 0:
            open_.pop()
        if open_:
            open_[-1] -= 1
        open_.append(whole(element.get(5, 0)))
        if len(open_) > MOST_LEVELS:
            raise ValueError("its columns are nested too deeply")


def chunk_in_memory(view: memoryview, column: Fields, rows: int) -> int:
    """An upper bound for one column of a group of so many rows: by the footer, and by every page of it."""
    start = whole(column.get(11, column[9]))
    if start > whole(column[9]):
        raise ValueError("a column's dictionary comes after its values")
    stop = start + whole(column[7])
    if stop > len(view):
        raise ValueError("a column ends behind its file")
    values = size = largest = 0
    while start < stop:
        reader = Reader(view[start : min(stop, start + MOST_HEADER)])
        page = reader.struct()
        size, largest = size + whole(page[2]), max(largest, whole(page[2]))
        for number, encoding in ((5, 2), (8, 4)):
            if number in page:
                values += whole(page[number][1])
                if column[1] == TEXT and page[number].get(encoding) == SHARING:
                    raise ValueError("its texts share their beginnings, as nobody writes them here")
        values += whole(page[7][1]) if 7 in page else 0
        start += reader.at + whole(page[3])
    # Texts stay as they lie in the pages; of numbers one page at a time is there twice while it is read.
    pages = size if column[1] not in VALUE or column[1] == TEXT else 2 * largest
    offsets = OFFSET * rows if len(column[3]) > 1 else 0
    return VALUE.get(column[1], 16) * max(values, whole(column[5]), rows) + offsets + pages


def whole(number: Any) -> int:
    """A number of things."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 62:
        raise ValueError("a number in its headers is none")
    return number
