"""The stand-alone verifier: what holds is accepted, everything else is rejected, with the standard library alone."""

import json
import re
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_iris

import torchperc as tp
from torchperc.cli import main
from torchperc.data import read
from torchperc.theory import verifier

FILES = {
    "separable": "a,b,label\n0,0,no\n0,1,no\n1,0,no\n1,1.5,yes\n",
    "AND": "a,b,label\n0,0,no\n0,1,no\n1,0,no\n1,1,yes\n",
    "not separable": "a,b,label\n0,0,no\n0,1,yes\n1,0,yes\n1,1.25,no\n0.5,0.5,no\n",
    "weakly separable": "a,b,label\n0,3,no\n1,5,no\n1,5,yes\n2,-1,yes\n",
    "in steps": "a,label\n0,x\n0,y\n1,x\n1,y\n",
    "three classes": "a,label\n0,x\n1,x\n2,y\n3,y\n3,z\n4,z\n",
    "with null vectors": "a,b,label\n0,0,no\n1,2,yes\n2,4,no\n0.5,1,yes\n",
}
KINDS = {"AND": "separable", "three classes": "weakly separable"}
KINDS |= dict.fromkeys(("in steps", "with null vectors"), "not separable")


def proved(name, folder, *options):
    """A data file, by name or by what is in it, and the content of the proof about it."""
    data, proof = folder / "data.csv", folder / "proof.json"
    data.write_text(FILES.get(name, name))
    with pytest.raises(SystemExit) as leave:
        main(["separable", str(data), "--out", str(proof), *options])
    assert leave.value.code == 0
    return data, json.loads(proof.read_text())


def accepted(content, data, both=True):
    """Whether a certificate, with a checksum that fits, is accepted for a file of data; by the package as well."""
    content = {**content, "checksum": verifier.checksum(content)}
    try:
        claim = verifier.parse(content)
        verifier.examine(claim, verifier.read_rows(data, claim))
        found = True
    except verifier.RejectedError:
        found = False
    if both:
        table, path = read(data), data.with_name("forged.json")
        path.write_text(json.dumps(content))
        try:
            assert tp.theory.Certificate.load(path).verify(table.X, table.y) is found
        except ValueError:
            assert not found
    return found


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("options", [(), ("--no-bias",)])
def test_proofs_hold(name, options, tmp_path, capsys):
    data, content = proved(name, tmp_path, *options)
    capsys.readouterr()
    assert content["kind"] != "undecided"
    assert options or content["kind"] == KINDS.get(name, name)
    assert verifier.main([str(tmp_path / "proof.json"), str(data)]) == 0
    assert capsys.readouterr().out.startswith(f"valid: {content['kind']}, proved for all {content['samples']} samples")
    assert accepted(content, data)


def test_the_standard_library_is_enough(tmp_path):
    data, _ = proved("weakly separable", tmp_path)
    alone = [sys.executable, "-I", "-S", verifier.__file__]  # no folder of other packages on the path
    words = [*alone, str(tmp_path / "proof.json"), str(data)]
    found = subprocess.run(words, capture_output=True, text=True)
    assert (found.returncode, found.stderr, found.stdout[:24]) == (0, "", "valid: weakly separable,")
    data.write_text(data.read_text().replace("2,-1,yes", "2,-2,yes"))
    found = subprocess.run(words, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (1, "rejected: the certificate is about other data\n")


def places(value, path=()):
    """Every number and text of a certificate, by its path."""
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(entry, (*path, key))
    else:
        yield path, value


def changed(content, path, *value):
    """A copy with another value in a place, or without that place."""
    copy = json.loads(json.dumps(content))
    spot = copy
    for key in path[:-1]:
        spot = spot[key]
    if value:
        spot[path[-1]] = value[0]
    else:
        del spot[path[-1]]
    return copy


@pytest.mark.parametrize("name", FILES)
def test_a_changed_or_missing_entry_with_a_new_checksum_is_rejected_too(name, tmp_path):
    data, content = proved(name, tmp_path)
    paths = [(path, value) for path, value in places(content) if path[0] not in ("format", "version", "checksum")]
    for path in {place[: i + 1] for place, _ in paths for i in range(len(place))}:
        assert not accepted(changed(content, path), data), path
    for path, value in paths:
        for other in (other for other in others(value) if other != value and path[0] != "reason"):
            fake = changed(content, path, other)
            found = accepted(fake, data, both=path[0] not in ("labels", "signs"))
            assert found is still_true(fake, path, data), (path, value, other)


def still_true(content, path, data):
    """A weak separator may have a neighbour that is one as well; anything else that is changed makes a proof wrong.

    But for what makes no difference to a witness alone: whether two classes are called −1 and +1, or 0 and 1, and that
    without a bias there is none either.
    """
    if path in (("signs",), ("bias",)):
        return content[path[0]] is False and content["hyperplane"] is None and not content["witness"]["null"]
    if path[0] != "hyperplane" or content["kind"] != "weakly separable" or path[1] not in ("weight", "bias"):
        return False
    try:
        weight = [[verifier.read_number(value) for value in row] for row in content["hyperplane"]["weight"]]
        bias = [verifier.read_number(value) for value in content["hyperplane"]["bias"]]
    except (ValueError, ZeroDivisionError, AttributeError):
        return False
    table, slacks = read(data), []
    for x, label in zip(table.X.tolist(), table.decode(table.y), strict=True):
        units = zip(weight, bias, strict=True)
        scores = [sum(w * Fraction(v) for w, v in zip(row, x, strict=True)) + b for row, b in units]
        scores = [-scores[0], scores[0]] if len(scores) == 1 else [2 * score for score in scores]
        own = table.labels.index(label)
        slacks += [scores[own] - score for k, score in enumerate(scores) if k != own]
    return min(slacks) == 0 and sum(slack > 0 for slack in slacks) == content["hyperplane"]["positive"]


def others(value):
    if isinstance(value, bool):
        return [not value, None, int(not value)]
    if isinstance(value, int):
        return [value + 1, value - 1, -value - 1, str(value), float(value), None, True]
    if value is None:
        return [[], {}, "0", 0]
    if re.fullmatch(r"-?\d+(/\d+)?", value):
        number = verifier.read_number(value)
        near = [number + 1, -number if number else Fraction(1, 3), number + Fraction(1, 2**70)]
        return [*(verifier.write_number(one) for one in near), "1/0", "x", "", "0x", 1, None, [value]]
    return [value + "x", value[1:], "not separable", None, 1]


def test_a_file_without_an_entry_names_the_entry(tmp_path):
    _, content = proved("AND", tmp_path)
    fake = changed(content, ("reason",))
    (tmp_path / "proof.json").write_text(json.dumps({**fake, "checksum": verifier.checksum(fake)}))
    with pytest.raises(ValueError, match="no entry 'reason'"):
        tp.theory.Certificate.load(tmp_path / "proof.json")


DAMAGE = {
    "a value": ("0,1,no", "0,1.0000000000000002,no"),
    "a label": ("0,1,no", "0,1,yes"),
    "an order": ("0,0,no\n0,1,no\n", "0,1,no\n0,0,no\n"),
    "a row less": ("0,1,no\n", ""),
    "a row more": ("0,1,no\n", "0,1,no\n0,1,no\n"),
    "an unknown label": ("0,1,no", "0,1,maybe"),
    "a column less": ("a,b,label\n0,0,no\n0,1,no\n1,0,no\n1,1.5,yes", "b,label\n0,no\n1,no\n0,no\n1.5,yes"),
    "no rows": ("0,0,no\n0,1,no\n1,0,no\n1,1.5,yes\n", ""),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_other_data_are_rejected(name, tmp_path, capsys):
    data, _ = proved("separable", tmp_path)
    before, after = DAMAGE[name]
    assert before in data.read_text()
    data.write_text(data.read_text().replace(before, after))
    capsys.readouterr()
    assert verifier.main([str(tmp_path / "proof.json"), str(data)]) == 1
    out, err = capsys.readouterr()
    assert (out[:10], out.count("\n"), err) == ("rejected: ", 1, "")


def witness(samples, rivals, weights):
    return {"samples": samples, "rivals": rivals, "weights": weights, "total": str(sum(map(int, weights)))}


def test_false_claims_are_rejected(tmp_path):
    data, content = proved("weakly separable", tmp_path)
    spanning = changed(content, ("witness", "null"), [])
    assert not accepted(spanning, data)
    assert not accepted({**spanning, "kind": "not separable", "hyperplane": None}, data)
    assert not accepted({**content, "kind": "separable", "witness": None}, data)
    nothing = {"weight": [["0", "0"]], "bias": ["0"], "least": "0", "squared_margin": "0", "positive": 0}
    assert not accepted({**content, "hyperplane": nothing}, data)
    assert accepted({**content, "kind": "not separable", "hyperplane": None}, data)  # true, and less


@pytest.mark.parametrize("weights", [["-1", "1", "1", "1"], ["1", "-1", "-1", "-1"], ["0", "0", "0", "0"]])
def test_weights_have_to_be_positive_and_rivals_others(weights, tmp_path):
    data, content = proved("AND", tmp_path)  # (x, 1) of the last sample is that of two others less the first
    part = verifier.Witness((0, 1, 2, 3), (1, 1, 1, 0), tuple(map(int, weights)))
    rows = dict(enumerate(verifier.read_rows(data, verifier.parse(content))))
    assert not any(verifier.combination(part, rows, 2, True))  # the sum alone would pass
    for fake in (witness([0, 1, 2, 3], [1, 1, 1, 0], weights), witness([3], [1], ["1"])):
        fake |= {"further": [], "null": None}
        assert not accepted({**content, "kind": "not separable", "hyperplane": None, "witness": fake}, data)


def test_further_sums_follow_from_each_other(tmp_path):
    data, content = proved("in steps", tmp_path)
    first, further = content["witness"], content["witness"]["further"]
    assert (len(first["samples"]), len(further), first["null"]) == (2, 1, [])
    for change in ({"further": []}, {"further": further * 2}, {"null": None}, {"further": [first]}):
        assert not accepted({**content, "witness": {**first, **change}}, data), change
    data, content = proved("a,label\n0,x\n0,y\n1,y\n2,x\n", tmp_path)
    second = witness([1, 2, 3], [0, 0, 1], ["-1", "2", "1"])  # rows of an earlier sum may have any sign
    first = witness([0, 1], [1, 0], ["1", "1"])
    assert accepted({**content, "witness": {**first, "further": [second], "null": []}}, data)
    assert not accepted({**content, "witness": {**second, "further": [first], "null": []}}, data)  # order is the proof


def test_null_vectors_have_to_be_independent_and_null(tmp_path):
    data, content = proved("with null vectors", tmp_path)
    (null,) = content["witness"]["null"]
    zero = {"weight": [["0", "0"]], "bias": ["0"]}
    doubled = {"weight": [[verifier.write_number(2 * Fraction(w)) for w in null["weight"][0]]], "bias": null["bias"]}
    right = null["bias"] == ["0"]
    for vectors, holds in (([null], True), ([], False), ([null, null], False), ([zero], False), ([doubled], right)):
        assert accepted(changed(content, ("witness", "null"), vectors), data) is holds


def test_undecided_proves_nothing(call, tmp_path, capsys):
    data, proof = tmp_path / "data.csv", tmp_path / "proof.json"
    data.write_text(FILES["separable"])
    code, out, _ = call("separable", data, "--time-limit", "1e-9", "--out", proof)
    assert (code, "undecided: the time limit of 1e-09 s" in out) == (1, True)
    assert verifier.main([str(proof), str(data)]) == 1
    assert "proves nothing" in capsys.readouterr().out


BAD = {
    "no certificate": (lambda proof, data: proof.unlink(), "cannot read"),
    "no data": (lambda proof, data: data.unlink(), "cannot read"),
    "not JSON": (lambda proof, data: proof.write_text("{"), "is not a certificate"),
    "not text": (lambda proof, data: proof.write_bytes(b"\xff"), "is not a certificate"),
    "other JSON": (lambda proof, data: proof.write_text("[1]"), "is not a certificate of separability"),
    "deep JSON": (lambda proof, data: proof.write_text("[" * 10**5), "is not a certificate"),
    "other version": (lambda proof, data: proof.write_text(proof.read_text().replace('"version": 1', '"version": 2')), "has version 2"),
    "empty data": (lambda proof, data: data.write_text(""), "is empty"),
    "one column": (lambda proof, data: data.write_text("a\n1\n"), "1 columns, where 2 are needed"),
    "ragged": (lambda proof, data: data.write_text("a,b,label\n0,0,no\n0,1\n"), "line 3: 2 columns, where 3"),
    "a word": (lambda proof, data: data.write_text("a,b,label\n0,zero,no\n"), "line 2, column 'b': 'zero' is not a finite number"),
    "infinite": (lambda proof, data: data.write_text("a,b,label\n0,inf,no\n"), "'inf' is not a finite number"),
    "no label": (lambda proof, data: data.write_text("a,b,label\n0,1,\n"), "the label is missing"),
    "not UTF-8": (lambda proof, data: data.write_bytes(b"\xff\xfe\n"), "not a CSV file"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_in_one_line(name, tmp_path, capsys):
    data, _ = proved("separable", tmp_path)
    spoil, message = BAD[name]
    spoil(tmp_path / "proof.json", data)
    capsys.readouterr()
    assert verifier.main([str(tmp_path / "proof.json"), str(data)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[:18]) == ("", 1, "torchperc: error: ")
    assert message in err


TABLES = {
    "header": ("a,b,label\n1,2,x\n3,4,y\n", None),
    "target by name": ("kind,a,b\nx,1,2\ny,3,4\n", "kind"),
    "target by position": ("0,1,5\n1,2,6\n0,3,8\n1,4,9\n", "1"),
    "numbers in one way": ("1,2,1\n3,4,1.0\n5,6,+2\n7,8,2\n", None),
    "spaces and blank lines": ("\ufeffa, b , label\n\n 1 , 2e3,x\n\n-0.0,4, y\n", None),
    "quoted": ('a,"b,c",label\n1,2,"x,1"\n3,4,y\n', None),
    "negative labels": ("1,-1\n2,1\n3,-1\n", None),
    "large numbers": ("1e308,1e308,x\n1,2,y\n", None),
    "three": ("1,a\n2,b\n3,c\n4,10\n5,9\n", None),
}


@pytest.mark.parametrize("name", TABLES)
def test_files_are_read_as_the_package_reads_them(name, tmp_path):
    text, target = TABLES[name]
    path = tmp_path / "data.csv"
    path.write_text(text, encoding="utf-8")
    table = read(path, target)
    two = table.classes is None
    claim = verifier.Claim("undecided", 1, 1, table.labels, two, True, "", None, None)
    rows = list(verifier.read_rows(path, claim, target))
    assert [list(values) for values, _ in rows] == table.X.tolist()
    assert [2 * own - 1 if two else own for _, own in rows] == table.y.tolist()


def test_one_digest_of_dense_sparse_and_written_data(tmp_path):
    random = np.random.default_rng(0)
    X = random.normal(size=(50, 7)) * (random.random((50, 7)) < 0.5)
    X[3], X[4, 2], X[0, 0] = 0.0, -0.0, 1.0
    own = random.integers(0, 3, 50)
    sparse = csr_array(X)
    other, sparse.data[0], zeroed = csr_array(X), 0.0, X.copy()  # an entry that is there and zero
    zeroed[0, 0] = 0.0

    def digest(data, labels=own):
        return tp.theory.separability(data, labels, time_limit=1e-9).digest

    for first, second in ((X, other), (zeroed, sparse)):
        written = verifier.Digest()
        for row, code in zip(first.tolist(), own.tolist(), strict=True):
            written.add(row, code)
        assert digest(first) == digest(second) == written.text(7)
    assert len({digest(X), digest(zeroed), digest(X[:, :6]), digest(X, own[::-1])}) == 4


def test_numbers_are_written_exactly():
    assert verifier.read_number("-3/2") == Fraction(-3, 2)
    for value in (Fraction(0), Fraction(-7, 3), Fraction(3**9000, 2**5000), Fraction(-(2**64)), Fraction(1, 10**5000)):
        assert verifier.read_number(verifier.write_number(value)) == value


def test_the_command_says_what_it_proved(call, tmp_path):
    code, out, err = call("separable", "XOR")
    assert (code, err) == (0, "")
    assert out.startswith("XOR: 4 samples, 2 features, labels -1, +1\nnot separable: ")
    assert "4 samples (rows 1, 2, 3, 4 of the data)" in out
    assert "\nseparable: " in call("separable", "AND")[1]
    data, proof = tmp_path / "data.csv", tmp_path / "proof.json"
    data.write_text(FILES["weakly separable"])
    out = call("separable", str(data), "--out", str(proof))[1]
    assert "\nweakly separable: " in out
    assert f"python -m torchperc.theory.verifier {proof} {data}, or in Python " in out


def test_iris_from_a_file(call, tmp_path):
    iris = load_iris()
    lines = ["kind," + ",".join(f"f{j}" for j in range(4))]
    lines += [f"{iris.target_names[t]},{','.join(map(str, x))}" for x, t in zip(iris.data, iris.target, strict=True)]
    data, proof = tmp_path / "iris.csv", tmp_path / "iris.json"
    data.write_text("\n".join(lines))
    code, out, _ = call("separable", str(data), "--target", "kind", "--out", str(proof))
    assert code == 0
    assert "weakly separable: " in out
    assert verifier.main([str(proof), str(data), "--target", "kind"]) == 0
    assert verifier.main([str(proof), str(data)]) == 1  # the last column is not what it is about
    assert tp.theory.Certificate.load(proof).verify(iris.data, iris.target)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.csv"], "cannot read nowhere.csv"),
        (["XOR", "--target", "a"], "--target a needs a file; XOR is a gate"),
        (["XOR", "--out", "no/where/x.json"], "is not a file in a folder that exists"),
        (["XOR", "--time-limit", "0"], "--time-limit 0.0 must be a finite number > 0"),
        (["XOR", "--time-limit", "soon"], "invalid float value"),
    ],
)
def test_the_command_says_what_is_wrong(words, message, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("separable", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
