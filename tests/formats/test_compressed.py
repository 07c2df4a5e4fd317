"""Compressed files of text: every compression, every way in which such a file can be broken."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib

import cramjam
import pyarrow as pa
import pytest

from penstock.errors import ConnectorError
from penstock.formats.compressed import EXTENSIONS, DecompressedFile, compression_of

TEXT = b"".join(b"line %d of a text that is compressed\n" % (i * i) for i in range(20_000))


def arrow(codec):
    def write(data):
        out = pa.BufferOutputStream()
        with pa.CompressedOutputStream(out, codec) as stream:
            stream.write(data)
        return out.getvalue().to_pybytes()

    return write


def hadoop_snappy(data, piece=50_000, block=120_000):
    codec, out = pa.Codec("snappy"), b""
    for at in range(0, len(data), block):
        part = data[at : at + block]
        out += len(part).to_bytes(4, "big")
        for begin in range(0, len(part), piece):
            packed = codec.compress(part[begin : begin + piece], asbytes=True)
            out += len(packed).to_bytes(4, "big") + packed
    return out


#: Name → (extension, compresses, whether one stream may follow another).
WRITERS = {
    "gzip": ("gz", gzip.compress, True),
    "bzip2": ("bz2", bz2.compress, True),
    "xz": ("xz", lzma.compress, True),
    "zstd": ("zst", arrow("zstd"), True),
    "deflate": ("deflate", zlib.compress, False),
    "lz4": ("lz4", arrow("lz4"), True),
    "snappy frames": ("sz", lambda data: bytes(cramjam.snappy.compress(data)), True),
    "snappy blocks": ("snappy", hadoop_snappy, True),
}


def opened(data, extension):
    return DecompressedFile(lambda: io.BytesIO(data), EXTENSIONS[extension], f"/x.{extension}")


@pytest.mark.parametrize("name", WRITERS)
def test_the_bytes_come_back_from_every_offset(name):
    extension, write, joined = WRITERS[name]
    data = write(TEXT)
    file = opened(data, extension)
    assert file.read(len(TEXT) + 1) == TEXT
    assert file.read(1) == b""
    file.seek(300_001)
    assert file.read(70_000) == TEXT[300_001:370_001]
    file.seek(300_100)  # within what was read since the last seek
    assert (file.read(5), file.tell()) == (TEXT[300_100:300_105], 300_105)
    file.seek(7)  # before it: the file is opened again
    assert file.readline() == TEXT[7:].split(b"\n", 1)[0] + b"\n"
    file.seek(len(TEXT) + 5)
    assert (file.tell(), file.read(1), file.readline()) == (len(TEXT), b"", b"")
    file.close()
    if joined:
        assert opened(data + write(b"more\n"), extension).read(2 * len(TEXT)) == TEXT + b"more\n"
    nothing = write(b"")
    assert not nothing or opened(nothing, extension).read(1) == b""


@pytest.mark.parametrize("name", WRITERS)
def test_a_broken_file_is_refused_by_name(name):
    extension, write, _ = WRITERS[name]
    data = write(TEXT)
    broken = {
        "cut": data[:-5],
        "cut in the middle": data[: len(data) // 2],
        "empty": b"",
        "another kind": b'{"id": 1}\n' * 100,
        "rubbish behind": data + b"\x01rubbish that is no stream",
    }
    for how, bad in broken.items():
        file = opened(bad, extension)
        with pytest.raises(ConnectorError, match="is damaged") as caught:
            print(how, len(file.read(2 * len(TEXT))))
        assert caught.value.where == f"/x.{extension}"


def test_a_flipped_bit_in_a_frame_of_snappy_is_found():
    data = bytearray(cramjam.snappy.compress(b"abc" * 100))
    data[-3] ^= 1
    with pytest.raises(ConnectorError, match="is damaged"):
        opened(bytes(data), "sz").read(1_000)


def test_a_failing_disk_is_no_damaged_file():
    class Failing(io.BytesIO):
        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        DecompressedFile(Failing, "gzip", "/x.gz").read(1)


@pytest.mark.parametrize(
    ("path", "compression"),
    [
        ("/a/b.json.gz", "gzip"), ("/a/b.GZIP", "gzip"), ("s3://b/k.csv.zst", "zstd"), ("/a.gz/b.json", None),
        ("/a/b", None), ("/a/gz", None), ("/a/b.sz", "snappy"), ("/a/b.json", None),
    ],
)  # fmt: skip
def test_the_extension_names_the_compression(path, compression):
    assert compression_of(path) == compression
