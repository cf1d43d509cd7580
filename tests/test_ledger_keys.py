# SPDX-License-Identifier: Apache-2.0
"""Keys on disk and in the hand: made once, kept secret, named, and retired."""

import base64
import copy
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b, sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from expunge.exceptions import InvalidInput, MissingExtra
from expunge.ledger import (
    KeyHistory,
    PublicKey,
    SigningKey,
    TagKey,
    UnusableKey,
    keys,
    open_signing_key,
    open_tag_key,
    subject_tag,
    subject_tags,
)
from expunge.ledger.keys import request_tag

# RFC 8032, section 7.1, test 2.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
SIGNATURE = (
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
RSA_LIKE = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


class TestSignatures:
    def test_published_vector(self) -> None:
        key = SigningKey(SEED)
        assert key.public.raw.hex() == PUBLIC
        assert key.sign(b"\x72").hex() == SIGNATURE
        assert key.public.verifies(bytes.fromhex(SIGNATURE), b"\x72")

    def test_other_payload_key_or_signature_is_refused(self) -> None:
        public, signature = PublicKey(bytes.fromhex(PUBLIC)), bytes.fromhex(SIGNATURE)
        assert not public.verifies(signature, b"\x73")
        assert not SigningKey(bytes(32)).public.verifies(signature, b"\x72")
        for i in range(64):
            forged = bytearray(signature)
            forged[i] ^= 1
            assert not public.verifies(bytes(forged), b"\x72")
        assert not public.verifies(signature[:-1], b"\x72")

    def test_name_is_the_hash_of_the_pem_content(self) -> None:
        public = SigningKey(SEED).public
        _, *body, _ = public.to_pem().strip().splitlines()
        assert public.id == sha256(base64.b64decode("".join(body))).hexdigest()
        for pem in (public.to_pem(), public.to_pem().encode()):
            assert KeyHistory.from_pem(pem) == KeyHistory(((0, public),))

    @pytest.mark.parametrize("pem", ["", "hello", RSA_LIKE, "\ud800"])
    def test_pem_without_a_key_is_refused(self, pem: str) -> None:
        with pytest.raises(InvalidInput, match="PEM text"):
            KeyHistory.from_pem(pem)

    def test_wrong_lengths_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="31 bytes"):
            PublicKey(bytes(31))
        with pytest.raises(InvalidInput, match="33 bytes"):
            SigningKey(bytes(33))
        with pytest.raises(InvalidInput, match="16 bytes"):
            TagKey(bytes(16))

    def test_without_the_library_the_extra_is_named(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
        keys._cryptography.cache_clear()
        with pytest.raises(MissingExtra, match=r"expunge\[registry\]"):
            SigningKey(SEED).sign(b"")
        monkeypatch.undo()
        keys._cryptography.cache_clear()

    def test_library_is_imported_late(self) -> None:
        program = "import sys, expunge.ledger; assert 'cryptography' not in sys.modules"
        subprocess.run([sys.executable, "-c", program], check=True)


class TestFiles:
    def test_made_on_first_use_and_read_after(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "keys" / "signing-0.pem"
        key = open_signing_key(path)
        assert open_signing_key(path) == key == open_signing_key(path, create=False)
        assert open_signing_key(tmp_path / "other.pem") != key
        assert mode(path) == 0o600
        assert mode(path.parent) == mode(path.parent.parent) == 0o700
        assert os.listdir(path.parent) == ["signing-0.pem"]
        assert path.read_text().startswith("-----BEGIN PRIVATE KEY-----")

    def test_existing_folder_keeps_its_mode(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        open_signing_key(tmp_path / "key.pem")
        assert mode(tmp_path) == 0o755

    @pytest.mark.parametrize("open_to", [0o640, 0o604, 0o620, 0o644, 0o666, 0o601])
    def test_file_open_to_others_is_refused(self, open_to: int, tmp_path: Path) -> None:
        for make in (open_signing_key, open_tag_key):
            path = tmp_path / make.__name__
            make(path)
            path.chmod(open_to)
            with pytest.raises(UnusableKey, match=f"mode {open_to:04o}.*chmod 600"):
                make(path)
            path.chmod(0o400)
            make(path)

    @pytest.mark.parametrize("content", [b"", b"no key", b"\xff" * 64, b"00" * 31])
    def test_file_without_a_key_is_refused(
        self, content: bytes, tmp_path: Path
    ) -> None:
        path = tmp_path / "key"
        path.write_bytes(content)
        path.chmod(0o600)
        for read in (open_signing_key, open_tag_key):
            with pytest.raises(UnusableKey, match="restore it from its backup"):
                read(path)
        assert path.read_bytes() == content

    def test_missing_file_is_not_replaced_unasked(self, tmp_path: Path) -> None:
        for read in (open_signing_key, open_tag_key):
            with pytest.raises(UnusableKey, match="cannot be read"):
                read(tmp_path / "gone", create=False)
        assert os.listdir(tmp_path) == []

    def test_what_is_no_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        with pytest.raises(UnusableKey, match="cannot be read"):
            open_signing_key(tmp_path / "link")
        with pytest.raises(UnusableKey, match="cannot be read"):
            open_signing_key(tmp_path)
        with pytest.raises(UnusableKey, match="regular file"):
            open_signing_key(Path(os.devnull))

    def test_everybody_who_comes_first_gets_one_key(self, tmp_path: Path) -> None:
        path = tmp_path / "keys" / "key.pem"
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: open_signing_key(path), range(32)))
        assert len({key.seed for key in found}) == 1
        assert os.listdir(path.parent) == ["key.pem"]

    def test_interrupted_making_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(descriptor: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            open_signing_key(tmp_path / "key.pem")
        assert os.listdir(tmp_path) == []

    def test_file_and_folder_are_flushed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flushed: list[str] = []
        real = os.fsync

        def noted(descriptor: int) -> None:
            flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        if not Path("/proc/self/fd").exists():
            pytest.skip("this system does not name open files")
        monkeypatch.setattr(os, "fsync", noted)
        open_tag_key(tmp_path / "keys" / "tags")
        above, file, folder = flushed
        assert (above, folder) == (str(tmp_path), str(tmp_path / "keys"))
        assert Path(file).name.startswith(".tags.")


@pytest.mark.parametrize("secret", [SigningKey(SEED), TagKey(SEED)])
def test_secrets_do_not_travel(secret: SigningKey | TagKey) -> None:
    assert SEED.hex() not in repr(secret)
    assert repr(secret).endswith("(secret)")
    with pytest.raises(TypeError, match="secret"):
        pickle.dumps(secret)
    with pytest.raises(TypeError, match="secret"):
        copy.deepcopy(secret)


class TestRing:
    FIRST, SECOND, THIRD = (SigningKey(bytes([i]) * 32).public for i in range(3))

    def test_each_size_has_its_key(self) -> None:
        history = KeyHistory(((0, self.FIRST),)).with_key(4, self.SECOND)
        history = history.with_key(9, self.THIRD)
        found = [history.at(size) for size in (0, 3, 4, 8, 9, 1000)]
        assert found == [
            *(self.FIRST, self.FIRST),
            *(self.SECOND, self.SECOND),
            *(self.THIRD, self.THIRD),
        ]
        assert history.current == self.THIRD
        assert [history.range_at(size) for size in (3, 4, 1000)] == [
            *((0, 3), (4, 8)),
            (9, None),
        ]
        assert history.until(8) == KeyHistory(((0, self.FIRST),)).with_key(
            4, self.SECOND
        )

    def test_impossible_histories_are_refused(self) -> None:
        for history in [(), ((1, self.FIRST),), ((0, self.FIRST), (0, self.SECOND))]:
            with pytest.raises(InvalidInput, match="in force from"):
                KeyHistory(history)
        with pytest.raises(InvalidInput, match="comes back"):
            KeyHistory(((0, self.FIRST),)).with_key(2, self.FIRST)


class TestPublishedList:
    """What is published says where each key begins and ends, or is refused."""

    FIRST, SECOND, THIRD = TestRing.FIRST, TestRing.SECOND, TestRing.THIRD
    HISTORY = KeyHistory(((0, FIRST), (4, SECOND), (9, THIRD)))
    PEM = HISTORY.to_pem()

    def test_says_what_each_key_signs(self) -> None:
        first, second, third = (
            key.to_pem() for key in (self.FIRST, self.SECOND, self.THIRD)
        )
        assert self.PEM == (
            f"Signs-From: 0\nSigns-To: 3\n{first}"
            f"Signs-From: 4\nSigns-To: 8\n{second}"
            f"Signs-From: 9\n{third}"
        )

    @pytest.mark.parametrize(
        "pem",
        [
            *(PEM, PEM.encode(), PEM.replace("\n", "\r\n"), PEM.replace("\n", " \n")),
            "Keys of the h\u00f4pital\n" + PEM.replace("Signs-To", "until:\nSigns-To"),
        ],
    )
    def test_survives_reading(self, pem: str | bytes) -> None:
        assert KeyHistory.from_pem(pem) == self.HISTORY

    def test_other_tools_read_it(self) -> None:
        key = serialization.load_pem_public_key(self.PEM.encode())
        assert isinstance(key, Ed25519PublicKey)
        assert key.public_bytes_raw() == self.FIRST.raw

    def test_a_key_alone_signs_everything(self) -> None:
        alone = KeyHistory(((0, self.FIRST),))
        assert KeyHistory.from_pem(self.FIRST.to_pem()) == alone
        assert KeyHistory.from_pem(alone.to_pem()) == alone

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("Signs-From: 0\n", "Signs-From: 1\n"),
            ("Signs-From: 0\n", ""),
            ("Signs-From: 4\n", ""),
            ("Signs-To: 8\n", ""),
            ("Signs-To: 8\n", "Signs-To: 7\n"),
            ("Signs-To: 8\n", "Signs-To: 9\n"),
            ("Signs-From: 9\n", "Signs-From: 9\nSigns-To: 12\n"),
            ("Signs-From: 9\n", "Signs-From: 8\n"),
            ("Signs-From: 9\n", "Signs-From: 4\n"),
            ("Signs-From: 9\n", "Signs-From: 9\nSigns-From: 9\n"),
            ("Signs-From: 9\n", "Signs-From: 09\n"),
            ("Signs-From: 9\n", "Signs-From: -9\n"),
            ("Signs-From: 9\n", "Signs-From: \u0669\n"),
            ("Signs-From: 9\n", f"Signs-From: {'9' * 5000}\n"),
            ("Signs-From: 9\n", "Signs-From:9\n"),
            ("Signs-From: 9\n", "signs-from: 9\n"),
            ("Signs-From: 9\n", "> Signs-From: 9\n"),
            ("Signs-From: 9\n", "Signs-From: 9 Signs-To: 12\n"),
            (PEM, PEM + "Signs-To: 12\n"),
            (PEM, PEM + PEM),
            (PEM, PEM.replace("Signs-", "Sings-")),
            (SECOND.to_pem(), FIRST.to_pem()),
            (THIRD.to_pem(), ""),
        ],
    )
    def test_a_list_with_a_gap_or_a_doubt_is_refused(self, old: str, new: str) -> None:
        assert old in self.PEM
        with pytest.raises(InvalidInput, match="the list of keys cannot be used"):
            KeyHistory.from_pem(self.PEM.replace(old, new))

    def test_keys_in_another_order_are_refused(self) -> None:
        head, middle, tail = re.split(r"(?=Signs-From)", self.PEM)[1:]
        for pem in (middle + head + tail, head + tail, middle + tail, tail, head):
            with pytest.raises(InvalidInput, match="the list of keys cannot be used"):
                KeyHistory.from_pem(pem)

    def test_several_keys_without_sizes_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="Signs-From: SIZE"):
            KeyHistory.from_pem(self.FIRST.to_pem() + self.SECOND.to_pem())


class TestTags:
    OLD, NEW = TagKey(b"o" * 32), TagKey(b"n" * 32)

    def test_tag_is_a_keyed_hash_with_the_name_of_its_key(self) -> None:
        name, _, value = subject_tag("Ada", self.OLD).partition(":")
        assert name == self.OLD.id
        expected = blake2b(
            b"Ada", key=b"o" * 32, digest_size=32, person=b"expunge subject"
        )
        assert value == expected.hexdigest()

    def test_people_and_keys_have_tags_of_their_own(self) -> None:
        people = ["Ada", "ada", "7", "07", "Ad\u00e4"]
        tags = {subject_tag(p, key) for p in people for key in (self.OLD, self.NEW)}
        assert len(tags) == 10

    def test_spellings_of_one_id_have_one_tag(self) -> None:
        for spellings in (("Zo\u00eb", " Zoe\u0308\n"), (7, "7", " 7 ")):
            assert len({subject_tag(one, self.OLD) for one in spellings}) == 1
        with pytest.raises(InvalidInput, match="missing"):
            subject_tag(None, self.OLD)

    def test_request_is_no_person(self) -> None:
        assert request_tag("Ada", self.OLD) != subject_tag("Ada", self.OLD)

    def test_old_tags_are_found_after_a_rotation(self) -> None:
        kept = subject_tag("Ada", self.OLD)
        assert kept in subject_tags("Ada", [self.NEW, self.OLD])
        assert kept not in subject_tags("Bob", [self.NEW, self.OLD])

    def test_without_its_key_a_tag_is_nobodys(self) -> None:
        assert subject_tag("Ada", self.OLD) not in subject_tags("Ada", [self.NEW])

    def test_file_holds_the_key(self, tmp_path: Path) -> None:
        key = open_tag_key(tmp_path / "tags")
        assert open_tag_key(tmp_path / "tags") == key
        assert (tmp_path / "tags").read_text() == key.secret.hex()
        assert key.id not in key.secret.hex()
