"""Downloads from a server on this machine: kept once and whole, and nothing is kept that is not what it should be."""
import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mfdl.base.downloads import fetch, read_bytes, unpacked

CONTENT = b"1 2\n2 3\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def tar(entries):
    """A gzipped tar archive of files, and of links where there is a target instead of a content."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str): entry.type, entry.linkname, content = tarfile.SYMTYPE, content, b""
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def zipped(entries):
    """A zip archive of files."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries: archive.writestr(name, content)
    return whole.getvalue()


PUBLISHED = {
    "plain/edges": (CONTENT, read_bytes), "gzipped/edges.gz": (gzip.compress(CONTENT), read_bytes),
    "tar/edges.tar.gz": (tar([("in/edges", CONTENT), ("in/other", b"1")]), partial(unpacked, "in/edges")),
    "zip/edges.zip": (zipped([("in/edges", CONTENT), ("in/other", b"1")]), partial(unpacked, "in/edges")),
}


class Server:
    """An owner of data sets, who may publish other bytes, or break off."""

    def __init__(self):
        server = self
        self.published, self.missing, self.asked = {path: content for path, (content, _) in PUBLISHED.items()}, 0, []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.path)
                content = server.published[self.path[1:]]
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[:len(content) - server.missing])

            def log_message(self, *_): pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def owner(tmp_path, monkeypatch):
    monkeypatch.setenv("MFDL_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: tmp_path / "cache")
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def asked(owner, path, known_hash=None):
    """The content of edges in the folder of a path, as it is published there."""
    return fetch(f"{Path(path).parent}/edges", SHA256, f"{owner.url}/{path}", PUBLISHED[path][1], known_hash=known_hash)


def kept(tmp_path): return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", PUBLISHED)
@pytest.mark.parametrize("known", [True, False])
def test_what_is_published_is_kept_and_not_fetched_again(owner, tmp_path, path, known):
    known_hash = f"md5:{hashlib.md5(owner.published[path]).hexdigest()}" if known else None
    assert asked(owner, path, known_hash) == CONTENT == asked(owner, path, known_hash) and owner.asked == [f"/{path}"]
    archive, *content = sorted(kept(tmp_path), key=lambda file: file.suffix == "")
    assert archive.read_bytes() == owner.published[path] and [file.read_bytes() for file in content] == [CONTENT] * (path.startswith(("tar", "zip")))


@pytest.mark.parametrize("path", PUBLISHED)
@pytest.mark.parametrize("known", [True, False])
def test_other_bytes_are_refused_and_not_kept(owner, tmp_path, path, known):
    known_hash, good = f"md5:{hashlib.md5(owner.published[path]).hexdigest()}" if known else None, owner.published[path]
    archives = tar([("in/edges", CONTENT[:-4])]), zipped([("in/edges", CONTENT + b"1 3\n")]), zipped([("in/no", CONTENT)])
    for other in (CONTENT[:-4], gzip.compress(CONTENT[:-4]), *archives, good[:len(good) // 2], b""):
        owner.published[path] = other
        with pytest.raises(ValueError, match="127.0.0.1.*damaged or changed|not a complete"): asked(owner, path, known_hash)
        assert not kept(tmp_path)
    owner.published[path] = good
    assert asked(owner, path, known_hash) == CONTENT


@pytest.mark.parametrize("path", PUBLISHED)
def test_a_download_that_breaks_off_leaves_nothing(owner, tmp_path, path):
    owner.missing = 7
    with pytest.raises(FileNotFoundError, match=f"could not be downloaded.*Fetch that address.*MFDL_DATA.*{Path(path).parent}/edges"): asked(owner, path)
    assert not kept(tmp_path)
    owner.missing = 0
    assert asked(owner, path) == CONTENT


def test_an_archive_that_changed_on_this_machine_is_fetched_again_where_its_hash_is_known(owner, tmp_path):
    path = "tar/edges.tar.gz"
    asked(owner, path)
    archive, content = sorted(kept(tmp_path), key=lambda file: file.suffix == "")
    content.unlink()
    archive.write_bytes(tar([("in/edges", CONTENT[:-4])]))
    assert asked(owner, path, f"sha256:{hashlib.sha256(owner.published[path]).hexdigest()}") == CONTENT and len(owner.asked) == 2


@pytest.mark.parametrize("pack", [zipped, tar])
def test_whatever_byte_of_an_archive_is_damaged_it_is_refused_in_words(tmp_path, pack):
    good, archive = pack([("in/edges", CONTENT[:200])]), tmp_path / "archive"
    for place in range(len(good)):
        for bit in (1, 8):
            archive.write_bytes(good[:place] + bytes([good[place] ^ bit]) + good[place + 1:])
            try: unpacked("in/edges", archive)  # what is unpacked is compared with its checksum afterwards
            except ValueError as error: assert "not a complete archive with the file in/edges" in str(error)


def test_the_cache_cannot_be_written(owner, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(FileNotFoundError, match="path=.*MFDL_DATA"): asked(owner, "plain/edges")


NAMES = st.sampled_from(["in/edges", "in/edges/../../../out", "../out", "in/edges.more", "in", "in/./edges"])


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, st.one_of(st.binary(max_size=9), st.sampled_from(["../../out", "edges"]))), min_size=1, max_size=4), st.booleans())
@example([("in/edges", "../../out"), ("in/edges", b"through a link")], False)
def test_an_archive_writes_nowhere_else(tmp_path_factory, entries, as_zip):
    """Whatever is in it, one file is given or it is refused, and nothing beside the folder for it is written."""
    folder = tmp_path_factory.mktemp("archive")
    archive, outside = folder / "archive", folder / "temporary"
    outside.mkdir()
    archive.write_bytes(zipped([entry for entry in entries if isinstance(entry[1], bytes)]) if as_zip else tar(entries))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tempfile.tempdir", str(outside))
        try: assert unpacked("in/edges", archive) in [content for name, content in entries if name in ("in/edges", "in/./edges")]
        except ValueError as error: assert "not a complete archive with the file in/edges" in str(error)
    assert not [*outside.iterdir()] and sorted(path.name for path in folder.iterdir()) == ["archive", "temporary"]
