"""Chains under a plain Trainer: the curves by brute force, the rule's log to the bit, batches of every kind."""

import math
from functools import partial
from itertools import pairwise, product

import numpy as np
import plain
import pytest
import pytorch_lightning as pl
import torch
from plain import board, fit, table
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import torchperc as tp
from torchperc.lightning import chains
from torchperc.lightning.chains import WholeSequences
from torchperc.lightning.sequences import SequenceDataModule, SequenceLoader
from torchperc.sequences import ChainPerceptron, PaddedSequences, Sequences, StructuredHead

L = tp.lightning
pytestmark = [pytest.mark.filterwarnings(each) for each in (*plain.CHATTER, "ignore:Be aware that when using")]
TAGS, WIDTH = 3, 4
PAIR = [[[1.0], [2.0]], [[3.0]]]  # sequences of two tokens and one


def made(count, seed=0, noise=0.3):
    """Integer features, and tags that depend on them and on the tag before, with some noise."""
    generator = torch.Generator().manual_seed(seed)
    X, y = [], []
    for length in torch.randint(1, 6, (count,), generator=generator).tolist():
        x = torch.randint(-2, 3, (length, WIDTH), generator=generator).float()
        tags, before = [], 0
        for token in x:
            scores = (
                token[:TAGS] + torch.eye(TAGS)[(before + 1) % TAGS] + noise * torch.randn(TAGS, generator=generator)
            )
            before = int(scores.argmax())
            tags.append(before)
        X.append(x)
        y.append(torch.tensor(tags))
    return X, y


TRAIN, VAL = made(16), made(5, seed=1)  # as many as make a mean exact


class Listed(Dataset):
    """A user's own data set: one ((x, length), y) per item, padded already."""

    def __init__(self, X, y):
        self.x = nn.utils.rnn.pad_sequence(X, batch_first=True)
        self.y = nn.utils.rnn.pad_sequence(y, batch_first=True, padding_value=-100)
        self.lengths = [len(each) for each in y]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return (self.x[i], self.lengths[i]), self.y[i]


def loader(data, size=None, **options):
    return DataLoader(Listed(*data), size or len(data[0]), **options)


def batches(*given):
    """A loader of batches that are made already."""
    return DataLoader(list(given), batch_size=None)


@torch.no_grad()
def score(net, x, tags):
    total = float(net.transition[TAGS, tags[0]] + net.end[tags[-1]])
    total += sum(float(net.weight[tag] @ token) for token, tag in zip(x, tags, strict=True))
    return total + sum(float(net.transition[a, b]) for a, b in pairwise(tags))


@torch.no_grad()
def judged(net, x, y, margin=0.0):
    """Loss, decision and whether it is a mistake, over all tag sequences; the decision has the lowest last tags."""
    y = tuple(y.tolist())
    every = sorted(product(range(TAGS), repeat=len(y)), key=lambda tags: tags[::-1])
    plain_scores = {tags: score(net, x, tags) for tags in every}
    costs = {tags: plain_scores[tags] + margin * sum(a != b for a, b in zip(tags, y, strict=True)) for tags in every}
    best, strongest = (max(every, key=lambda tags: given[tags]) for given in (plain_scores, costs))
    return costs[strongest] - costs[y], best, strongest != y


def expected(net, data, margin=0.0):
    found = [judged(net, x, tags, margin) for x, tags in zip(*data, strict=True)]
    wrong = [
        sum(a != b for a, b in zip(best, y.tolist(), strict=True))
        for (_, best, _), y in zip(found, data[1], strict=True)
    ]
    return {
        "loss": sum(loss for loss, _, _ in found) / len(found),
        "error": sum(wrong) / sum(map(len, data[1])),
        "error/sequence": sum(map(bool, wrong)) / len(wrong),
        "mistakes": sum(mistake for _, _, mistake in found),
    }


# --- by gradient ---


def test_one_sequence_at_a_time_is_the_rule_to_the_bit(tmp_path):
    nets = [ChainPerceptron(WIDTH, TAGS) for _ in range(4)]
    gradient = L.LitTagger(nets[0], lr=1.0)
    fit(tmp_path / "gradient", gradient, loader(TRAIN, 1), epochs=3)
    result = tp.RuleTrainer(max_epochs=3, order="given").fit(nets[1], *TRAIN)
    whole = L.LitTaggerRule(nets[2])
    fit(tmp_path / "whole", whole, loader(TRAIN), epochs=3)
    fit(tmp_path / "online", L.LitTaggerRule(nets[3]), loader(TRAIN, 5), epochs=3)
    assert len(result.log) > 10
    for net in nets[1:]:
        assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), net.parameters(), strict=True))
    assert whole.result.log.equals(result.log)
    made_by_epoch = result.log.mistakes_by_epoch().tolist()
    for name in ("gradient", "whole", "online"):
        assert table(tmp_path / name)["mistakes"] == made_by_epoch


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_every_curve_by_brute_force(tmp_path, margin):
    lit = L.LitTagger(ChainPerceptron(WIDTH, TAGS), margin, lr=0.25)
    before = []

    class Before(pl.Callback):
        def on_train_epoch_start(self, trainer, module):
            before.append({**expected(module.net, TRAIN, margin)})

    trainer = fit(tmp_path, lit, loader(TRAIN), loader(VAL, 2), epochs=3, callbacks=[Before()])
    csv, curves = table(tmp_path), board(tmp_path)
    for name in ("loss", "error", "error/sequence", "mistakes"):
        tag = name if name == "mistakes" else f"{name}/train"
        assert csv[tag] == pytest.approx([epoch[name] for epoch in before], rel=1e-6)
        assert [value for _, value in curves[tag]] == pytest.approx(csv[tag], rel=1e-6)
    last = expected(lit.net, VAL, margin)
    for name in ("loss", "error", "error/sequence"):
        assert csv[f"{name}/val"][-1] == pytest.approx(last[name], rel=1e-6)
    assert csv["norm"][-1] == pytest.approx(
        math.sqrt(sum(float(p.detach().square().sum()) for p in lit.net.parameters()))
    )
    assert "margin" not in csv
    assert all(value.dtype == torch.float64 for value in trainer.callback_metrics.values())


def test_batches_of_every_kind_are_the_same(tmp_path):
    batch = Listed(*TRAIN)
    binary = Sequences.of([(x % 3 == 1).float() for x in TRAIN[0]])  # features that are 0 or 1
    sparse = Sequences(binary.offsets, WIDTH, binary.indptr, binary.ids)
    lengths = torch.tensor(batch.lengths)
    kinds = {
        "pair": lambda: loader(([(x % 3 == 1).float() for x in TRAIN[0]], TRAIN[1])),
        "tags say": lambda: DataLoader(TensorDataset(binary.padded().x, batch.y), 16),
        "ids": lambda: batches(((sparse.padded().x, lengths), batch.y)),
        "named": lambda: batches((PaddedSequences(*sparse.padded()), batch.y)),
        "ones": lambda: batches(((binary.padded().x, lengths), batch.y, torch.ones(16))),
        "whole": lambda: SequenceLoader(binary, TRAIN[1]),
        "whole ids": lambda: SequenceLoader(sparse, batch.y),
    }
    found = {}
    for name, make in kinds.items():
        lit = L.LitTagger(ChainPerceptron(WIDTH, TAGS), lr=0.5)
        fit(tmp_path / name, lit, make(), make(), epochs=2)
        found[name] = table(tmp_path / name), [values.detach().clone() for values in lit.net.parameters()]
    for name, (csv, weights) in found.items():
        assert all(torch.allclose(a, b) for a, b in zip(weights, found["pair"][1], strict=True))
        for tag in ("loss/train", "error/train", "error/sequence/train", "mistakes", "norm", "loss/val", "error/val"):
            assert csv[tag] == pytest.approx(found["pair"][0][tag]), (name, tag)


def test_full_length_sequences_need_no_lengths_and_weights_count(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 4, WIDTH, generator=generator), torch.randint(TAGS, (6, 4), generator=generator)
    weight = torch.tensor([1.0, 0, 2, 0, 1, 0])
    lit = L.LitTagger(ChainPerceptron(WIDTH, TAGS), 1.0, lr=0.5)
    fit(tmp_path, lit, batches((x, y, weight)), epochs=2)
    net, kept = ChainPerceptron(WIDTH, TAGS), weight > 0
    for _ in range(2):
        losses = StructuredHead(1.0).loss(net(x[kept]), y[kept], reduction="none")
        slopes = torch.autograd.grad((losses * weight[kept]).sum() / 6, net.parameters())
        for values, slope in zip(net.parameters(), slopes, strict=True):
            values.data -= 0.5 * slope
    assert torch.allclose(net.weight, lit.net.weight)
    assert lit.predict_step(x).tolist() == lit.net.predict(x).tolist()


def test_a_net_of_your_own_may_give_the_scores(tmp_path):
    class Emitting(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.chain = nn.Linear(WIDTH, 8), ChainPerceptron(8, TAGS)

        def forward(self, x):
            return self.chain(torch.tanh(self.hidden(x.x)), x.lengths)

    torch.manual_seed(0)
    lit = L.LitTagger(Emitting(), optimizer=partial(torch.optim.Adam, lr=0.05))
    fit(tmp_path, lit, loader(TRAIN, 4), loader(VAL), epochs=30)
    csv = table(tmp_path)
    assert csv["error/train"][-1] < csv["error/train"][0]


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_a_checkpoint_gives_net_and_head_back(tmp_path, margin):
    net = ChainPerceptron(WIDTH, TAGS, dtype=torch.float64)
    lit = L.LitTagger(net, margin, lr=0.5)
    saved = ModelCheckpoint(tmp_path, "last")
    data = ([x.double() for x in TRAIN[0]], TRAIN[1])
    fit(tmp_path, lit, loader(data, 3), epochs=2, callbacks=[saved], enable_checkpointing=True)
    same = L.LitTagger.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert repr(same.net) == repr(net)
    assert same.head == lit.head
    assert same.net.weight.dtype == torch.float64
    assert all(torch.equal(a, b) for a, b in zip(same.net.parameters(), net.parameters(), strict=True))
    assert same.hparams.margin == lit.hparams.margin
    alone = L.LitTagger(ChainPerceptron(WIDTH, TAGS, dtype=torch.float64), margin, lr=0.5)
    fit(tmp_path / "alone", alone, loader(data, 3), epochs=4)
    more = L.LitTagger(ChainPerceptron(WIDTH, TAGS, dtype=torch.float64), margin, lr=0.5)
    fit(tmp_path / "more", more, loader(data, 3), epochs=4, ckpt_path=tmp_path / "last.ckpt")
    assert torch.equal(alone.net.weight, more.net.weight)


# --- by rule ---


@pytest.mark.parametrize(
    "options",
    [
        {"order": "shuffled", "select": "averaged", "seed": 3},
        {"lr": 0.5, "margin": 1.0},
        {"select": "voted", "tie": "sign"},
        {"order": "shuffled", "select": "best-validation"},
    ],
    ids=["averaged", "margin", "voted", "best"],
)
def test_one_batch_is_learned_as_by_rule_trainer_and_resumed_exactly(tmp_path, options):
    net = ChainPerceptron(WIDTH, TAGS)
    result = tp.RuleTrainer(max_epochs=5, **options).fit(net, *TRAIN, validation=VAL)
    lit = L.LitTaggerRule(ChainPerceptron(WIDTH, TAGS), **options)
    saved = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)
    fit(tmp_path, lit, loader(TRAIN), loader(VAL, 2), epochs=5, callbacks=[saved], enable_checkpointing=True)
    assert lit.result.log.equals(result.log)
    assert lit.result.verdict == result.verdict
    assert all(torch.equal(a, b) for a, b in zip(lit.net.parameters(), net.parameters(), strict=True))
    csv, epochs = table(tmp_path), result.epochs
    assert csv["mistakes"] == [record.mistakes for record in result.history]
    assert csv["error/sequence/train"] == [record.mistakes / 16 for record in result.history]
    tokens, made_by_now = sum(map(len, TRAIN[1])), 0
    for epoch, record in enumerate(result.history):
        part = list(result.log)[made_by_now : made_by_now + record.mistakes]
        wrong = sum(int((TRAIN[1][each.sequence][: len(each.wrong)] != each.wrong).sum()) for each in part)
        assert csv["error/train"][epoch] == wrong / tokens
        made_by_now += record.mistakes
    assert csv["norm"] == [record.norm for record in result.history]
    assert csv["theory/mistakes"][-1] == len(result.log)
    last = result.log.last()
    decisions = last.predict(TRAIN[0])
    gaps = [
        max(0.0, score(last, x, d.tolist()) - score(last, x, t.tolist()))
        for x, t, d in zip(*TRAIN, decisions, strict=True)
    ]
    assert csv["loss/train"][-1] == pytest.approx(sum(gaps) / 16)
    if options.get("select") in (None, "best-validation"):
        assert csv["error/val"] == pytest.approx([record.validation_error for record in result.history])
    for name in {f"epoch={epoch}" for epoch in (1, epochs - 1)}:
        again = L.LitTaggerRule(ChainPerceptron(WIDTH, TAGS), **options)
        fit(tmp_path / name, again, loader(TRAIN), loader(VAL, 2), epochs=5, ckpt_path=tmp_path / f"{name}.ckpt")
        assert again.result.log.equals(result.log)
        assert all(torch.equal(a, b) for a, b in zip(again.net.parameters(), net.parameters(), strict=True))
        assert again.result.history == lit.result.history


def test_mini_batches_are_learned_online(tmp_path):
    lit = L.LitTaggerRule(ChainPerceptron(WIDTH, TAGS), select="averaged")
    saved = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=4, save_top_k=-1)
    fit(tmp_path, lit, loader(TRAIN, 5), epochs=3, callbacks=[saved], enable_checkpointing=True)
    net, trainer, made_each = ChainPerceptron(WIDTH, TAGS), tp.RuleTrainer(select="averaged"), []
    for _ in range(3):
        parts = [slice(first, first + 5) for first in (0, 5, 10, 15)]
        made_each.append([trainer.partial_fit(net, TRAIN[0][part], TRAIN[1][part]).mistakes for part in parts])
    assert table(tmp_path)["mistakes"] == list(map(sum, made_each))
    assert all(torch.equal(a, b) for a, b in zip(lit.net.parameters(), net.parameters(), strict=True))
    again = L.LitTaggerRule(ChainPerceptron(WIDTH, TAGS), select="averaged")
    fit(tmp_path / "again", again, SequenceLoader(*TRAIN, 5), epochs=3)
    assert torch.equal(again.net.weight, net.weight)
    assert table(tmp_path / "again")["loss/train"] == pytest.approx(table(tmp_path)["loss/train"])
    resumed = L.LitTaggerRule(ChainPerceptron(WIDTH, TAGS), select="averaged")
    data = SequenceLoader(*TRAIN, 5)
    fit(tmp_path / "more", resumed, data, epochs=3, ckpt_path=tmp_path / "step=8.ckpt")
    assert resumed.result.history[-1].mistakes == lit.result.history[-1].mistakes


def test_a_loader_that_changes_its_batch_is_refused(tmp_path):
    class Changing(Listed):
        def __getitem__(self, i):
            self.y[0, 0] = (self.y[0, 0] + 1) % TAGS
            return super().__getitem__(i)

    with pytest.raises(ValueError, match="batch differs"):
        fit(tmp_path, L.LitTaggerRule(ChainPerceptron(WIDTH, TAGS)), DataLoader(Changing(*TRAIN), 16))


def test_compiled_loops_count_as_torch_does(tmp_path, monkeypatch):
    found = []
    for least in (0, 10**9):  # steps of Viterbi from which the compiled loops are used
        monkeypatch.setattr(chains, "_WORTH_IT", least)
        lit = L.LitTagger(ChainPerceptron(WIDTH, TAGS), lr=0.5)
        fit(tmp_path / str(least), lit, loader(TRAIN, 3), SequenceLoader(*VAL), epochs=2)
        found.append({name: float(value) for name, value in lit.trainer.callback_metrics.items()})
    assert found[0] == pytest.approx(found[1])


# --- what is refused ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda net: L.LitTagger(tp.Perceptron(2)), "found Perceptron; use LitClassifier"),
        (lambda net: L.LitTaggerRule(tp.Perceptron(2)), "found Perceptron; use LitRule"),
        (
            lambda net: L.LitTaggerRule(net, class_weight={0: 2.0}),
            "cannot be used with a ChainPerceptron: a sequence has many",
        ),
        (lambda net: L.LitTaggerRule(net, bias_step="unit"), "bias_step='unit' cannot be used with a ChainPerceptron"),
        (
            lambda net: L.LitTaggerRule(net, distributed="mix"),
            "distributed='mix' cannot be used with a ChainPerceptron",
        ),
        (lambda net: L.LitTaggerRule(net, prove=True), "prove=True cannot be used with a ChainPerceptron"),
    ],
)
def test_options_without_meaning_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(ChainPerceptron(WIDTH, TAGS))


def test_lengths_in_the_place_of_weights_are_refused():
    listed = Listed(*TRAIN)
    batch = (listed.x, listed.y, torch.tensor(listed.lengths))
    with pytest.raises(ValueError, match=r"the loader gives \(x, y, lengths\); lengths belong to x"):
        chains.chain_batch(batch)
    assert chains.chain_batch((*batch[:2], batch[2].double()))[2] is not None


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (lambda b: b.x, TypeError, r"must be \(\(x, lengths\), y\), \(x, y\), or one of them"),
        (lambda b: (b.x, torch.tensor(b.lengths), b.y), ValueError, r"let it give \(\(x, lengths\), y\)"),
        (lambda b: (b.x, b.y.flatten()), ValueError, r"tags must be integers of shape \(N, T\)"),
        (lambda b: (b.x, b.y.float()), ValueError, "found torch.float32"),
        (lambda b: (b.x[:, :2], b.y), ValueError, r"found \(16, 2, 4\) and \(16, 5\)"),
        (lambda b: (b.x, b.y.roll(1, 1)), ValueError, "of a batch has -100 before its end"),
        (lambda b: ("x", b.y), TypeError, "a batch must hold tensors, found str"),
        (lambda b: ((b.x, torch.full((16,), 9)), b.y), ValueError, "lengths run from 9 to 9"),
        (lambda b: (b.x, b.y.masked_fill(b.y == 1, 7)), ValueError, "has tag 7; tags run from 0 to 2"),
        (lambda b: (b.x, b.y, torch.full((16,), -1.0)), ValueError, "sample_weight must hold finite numbers >= 0"),
    ],
)
def test_wrong_batches_are_named(batch, error, message):
    lit = L.LitTagger(ChainPerceptron(WIDTH, TAGS))
    with pytest.raises(error, match=message):
        lit.validation_step(batch(Listed(*TRAIN)))


def test_predictions_of_batches_of_every_kind():
    lit, batch = L.LitTaggerRule(ChainPerceptron(WIDTH, TAGS)), Listed(*TRAIN)
    tp.RuleTrainer(max_epochs=3).fit(lit.net, *TRAIN)
    lengths = torch.tensor(batch.lengths)
    expected = lit.net.predict(batch.x, lengths)
    for given in ((batch.x, lengths), [[batch.x, lengths], batch.y], (PaddedSequences(batch.x, lengths), batch.y)):
        assert torch.equal(lit.predict_step(given), expected)
    assert torch.equal(lit.predict_step(WholeSequences(Sequences.of(TRAIN[0]))), expected)
    full = lit.predict_step((batch.x, batch.y))  # without lengths all are T long
    assert torch.equal(full, lit.net.predict(batch.x))
    with pytest.raises(TypeError, match=r"must be x \(N, T, d\) or \(x, lengths\)"):
        lit.predict_step(torch.zeros(3))


# --- data ---


def test_a_loader_shuffles_and_resumes():
    X, y = made(100, seed=5)
    loader = SequenceLoader(X, y, 8, "shuffled", seed=2)
    epochs = [list(loader) for _ in range(2)]
    for epoch in epochs:
        seen = [(x[i, :n].tolist(), t[i, :n].tolist()) for (x, lengths), t in epoch for i, n in enumerate(lengths)]
        assert sorted(seen) == sorted((a.tolist(), b.tolist()) for a, b in zip(X, y, strict=True))
        assert all(int(lengths.max()) == x.shape[1] == t.shape[1] for (x, lengths), t in epoch)
    assert [t.tolist() for _, t in epochs[0]] != [t.tolist() for _, t in epochs[1]]
    other = SequenceLoader(X, y, 8, "shuffled", seed=2)
    other.load_state_dict({"epoch": 1, "position": 5})
    assert [t.tolist() for _, t in other] == [t.tolist() for _, t in epochs[1][5:]]
    order = torch.randperm(100, generator=torch.Generator().manual_seed(2))
    assert epochs[0][0][0].lengths.tolist() == [len(y[i]) for i in order[:8].tolist()]  # as RuleTrainer shuffles
    ((whole, tags),) = SequenceLoader(X, y)
    assert isinstance(whole, WholeSequences)
    assert (len(whole), tags.shape) == (100, (100, 5))
    ((shuffled, tags),) = SequenceLoader(X, y, order="shuffled", seed=2)
    assert shuffled.source.lengths.tolist() == [len(y[i]) for i in order.tolist()] == (tags != -100).sum(1).tolist()


SENTENCES = tp.data.tagged_sentences(60, seed=0)


@pytest.mark.parametrize("kind", ["list", "file"])
def test_tokens_become_features_of_the_training_set(tmp_path, kind):
    file = tmp_path / "train.conll"
    file.write_text("\n".join("".join(f"{word} {tag}\n" for word, tag in each) for each in SENTENCES))
    data = SequenceDataModule(SENTENCES if kind == "list" else file, batch_size=16, order="shuffled", seed=1)
    assert data.tags_ == tuple(sorted({tag for each in SENTENCES for _, tag in each}))
    assert [len(part) for part in data.indices] == [48, 6, 6]
    chosen = [[SENTENCES[i] for i in part.tolist()] for part in data.indices]
    features = tp.sequences.FeatureMap()
    makers = (features.fit_transform, features.transform, features.transform)
    for (X, y), make, part in zip(data.parts, makers, chosen, strict=True):
        assert np.array_equal(X.ids, make([[word for word, _ in each] for each in part]).ids)
        assert data.width == features.width == X.width
        assert data.decode(y) == [[tag for _, tag in each] for each in part]
    assert bool(data.hparams) == (kind == "file")


def test_a_data_module_trains_both_modules_and_one_of_your_own(tmp_path):
    class Own(pl.LightningModule):
        def __init__(self, data):
            super().__init__()
            self.net, self.loss = ChainPerceptron(data.width, data.tags), tp.sequences.StructuredPerceptronLoss()

        def training_step(self, batch, batch_idx):
            (x, lengths), y = batch
            return self.loss(self.net(x, lengths), y)

        def validation_step(self, batch, batch_idx):
            (x, lengths), y = batch
            self.log("val", self.loss(self.net(x, lengths), y))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1.0)

    def data(size, order="given"):
        return SequenceDataModule(SENTENCES, batch_size=size, order=order)

    lits = {
        "rule": (
            L.LitTaggerRule(ChainPerceptron(data("full").width, 8), select="averaged", order="shuffled"),
            data("full"),
        ),
        "gradient": (L.LitTagger(ChainPerceptron(data(4).width, 8), lr=1.0), data(4, "shuffled")),
        "own": (Own(data(4)), data(4, "shuffled")),
    }
    for name, (lit, given) in lits.items():
        trainer = pl.Trainer(
            max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(lit, given)
        X, y = given.parts[2]
        wrong = sum(int((a != b[: len(a)]).sum()) for a, b in zip(lit.net.predict(X), y, strict=True))
        assert wrong / X.tokens < 0.35, name
        if name == "own":
            continue
        metrics = trainer.test(lit, given, verbose=False)[0]
        assert metrics["error/test"] == pytest.approx(wrong / X.tokens)
        said = [tags for batch in trainer.predict(lit, given) for tags in batch]
        assert given.decode(said) == given.decode(lit.net.predict(X))
    (rule, given), (gradient, _) = lits["rule"], lits["gradient"]
    (X, y), flat = given.parts[0], given.parts[0][1]
    net = ChainPerceptron(given.width, 8)
    result = tp.RuleTrainer(max_epochs=6, select="averaged", order="shuffled").fit(net, X, flat)
    assert rule.result.log.equals(result.log)
    assert torch.equal(rule.net.weight, net.weight)
    assert all(
        torch.equal(a, b) for a, b in zip(gradient.net.parameters(), lits["own"][0].net.parameters(), strict=True)
    )


def test_features_come_with_their_tags(tmp_path):
    X, y = TRAIN
    data = SequenceDataModule(X, y, split=(0.5, 0.25, 0.25), dtype="float64")
    assert data.parts[0][0].values.dtype == np.float64
    assert data.decode(data.parts[2][1]) == [y[i].tolist() for i in data.indices[2].tolist()]
    other = SequenceDataModule(X, y, validation=VAL)
    assert (len(other.parts[0][0]), len(other.parts[1][0]), other.parts[2][0]) == (16, 5, None)
    assert other.tags_ == (0, 1, 2)
    assert other.test_dataloader() == []
    lit = L.LitTaggerRule(ChainPerceptron(WIDTH, TAGS))
    saved = ModelCheckpoint(tmp_path, "last")
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, callbacks=[saved], enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(lit, other)
    with pytest.raises(ValueError, match="source is not the data that the checkpoint was made on"):
        pl.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(
            L.LitTaggerRule(ChainPerceptron(WIDTH, TAGS)), SequenceDataModule(*VAL, validation=TRAIN),
            ckpt_path=tmp_path / "last.ckpt", weights_only=True,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SequenceDataModule(3).parts, TypeError, "source must be a file or a list of sentences"),
        (lambda: SequenceDataModule([["the", "dog"]]).parts, ValueError, "column=-1 cannot be that of the tags"),
        (lambda: SequenceDataModule(TRAIN[0]).parts, TypeError, "with features, give y"),
        (lambda: SequenceDataModule(*TRAIN, templates="U:%x[0,0]"), ValueError, "templates are for tokens"),
        (lambda: SequenceDataModule(TRAIN[0], TRAIN[1][1:]).parts, ValueError, "y has 15 sequences but there are 16"),
        (lambda: SequenceDataModule(PAIR, [[0, 1], [-1]]).parts, ValueError, "sequence 1, position 0 has tag -1"),
        (lambda: SequenceDataModule([]).parts, ValueError, "empty"),
        (lambda: SequenceDataModule(*TRAIN, validation=3).parts, TypeError, "validation must be a pair"),
        (lambda: SequenceDataModule(*TRAIN, split=(1, 0, 0), validation=VAL), ValueError, "split is for one source"),
        (lambda: SequenceDataModule(SENTENCES, order="sorted"), ValueError, "order='sorted' is unknown"),
        (lambda: SequenceDataModule(SENTENCES, batch_size=0), ValueError, "batch_size=0"),
    ],
)
def test_wrong_sources_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
