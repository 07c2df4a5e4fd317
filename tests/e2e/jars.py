"""JARs for tests, which no Java compiler is needed for."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path


def jar_of_subclass(folder: Path, name: str, parent: str) -> Path:
    """A JAR with one public class: ``parent`` by another name (both with dots)."""
    file = name.replace(".", "/")
    path = folder / f"{name.rpartition('.')[2].lower()}.jar"
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\n\r\n")
        jar.writestr(f"{file}.class", _class_file(file, parent.replace(".", "/")))
    return path


def _class_file(name: str, parent: str) -> bytes:
    """``public class name extends parent { public name() { super(); } }`` (JVM specification, chapter 4)."""
    constants = [
        _utf8(name), struct.pack(">BH", 7, 1),  # 2: Class
        _utf8(parent), struct.pack(">BH", 7, 3),  # 4: Class
        _utf8("<init>"), _utf8("()V"), _utf8("Code"),
        struct.pack(">BHH", 12, 5, 6),  # 8: NameAndType
        struct.pack(">BHH", 10, 4, 8),  # 9: Methodref
    ]  # fmt: skip
    code = b"\x2a\xb7\x00\x09\xb1"  # aload_0, invokespecial 9, return
    body = struct.pack(">HHI", 1, 1, len(code)) + code + struct.pack(">HH", 0, 0)
    method = struct.pack(">HHHH", 1, 5, 6, 1) + struct.pack(">HI", 7, len(body)) + body
    java_8, public_super = 52, 0x21
    return b"".join(
        [
            struct.pack(">IHHH", 0xCAFEBABE, 0, java_8, len(constants) + 1),
            *constants,
            struct.pack(">HHHHH", public_super, 2, 4, 0, 0),
            struct.pack(">H", 1) + method,
            struct.pack(">H", 0),
        ]
    )


def _utf8(text: str) -> bytes:
    return struct.pack(">BH", 1, len(text)) + text.encode()
