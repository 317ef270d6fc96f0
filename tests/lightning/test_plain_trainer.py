"""The modules in a user's own script: what a plain Trainer with stock loggers shows, value by value."""

import math
from functools import partial

import numpy as np
import plain
import pytest
import pytorch_lightning as pl
import torch
from plain import TRAIN, VAL, History, board, descent, evaluation, fit, loader, table
from pytorch_lightning.callbacks import ModelCheckpoint
from scipy.sparse import csr_array
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import torchperc as tp

L = tp.lightning
pytestmark = [pytest.mark.filterwarnings(each) for each in plain.CHATTER]
GRADIENT = ["loss/train", "error/train", "mistakes", "margin", "norm"]
THEORY = ["theory/lower", "theory/upper", "theory/mistakes"]
LITS = {
    "gradient": lambda: L.LitClassifier(tp.Perceptron(3)),
    "sample": lambda: L.LitClassifier(tp.Perceptron(3), update="sample"),
    "rule": lambda: L.LitRule(tp.Perceptron(3)),
}
BOTH = pytest.mark.parametrize("lit", [LITS["gradient"](), LITS["rule"]()], ids=["gradient", "rule"])


def batches(size=20):
    return [(TRAIN[0][i : i + size], TRAIN[1][i : i + size]) for i in range(0, len(TRAIN[1]), size)]


# --- curves ---


def test_gradient_descent_shows_every_curve_in_every_logger(tmp_path):
    lit = L.LitClassifier(tp.Perceptron(3), lr=0.5)
    trainer = fit(tmp_path, lit, loader(TRAIN, 20), loader(VAL, 30), epochs=4)
    expected = list(descent(batches(), 4, 0.5, plain.perceptron_criterion))
    csv, curves = table(tmp_path), board(tmp_path)
    for tag in GRADIENT:
        assert [step for step, _ in curves[tag]] == [2, 5, 8, 11]  # Lightning's axis: batches before the last one
        assert [value for _, value in curves[tag]] == pytest.approx(csv[tag], rel=1e-6)  # event files are float32
    for tag in ("loss/train", "error/train", "norm", "margin"):
        assert csv[tag] == pytest.approx([epoch[tag] for epoch in expected], rel=1e-6)
    assert csv["mistakes"][1:] == [60 * error for error in csv["error/train"][1:]]  # the first has scores of 0
    assert torch.allclose(lit.net.weight, expected[-1]["w"])
    loss, error = evaluation(lit.net, VAL, plain.perceptron_criterion)
    assert (csv["loss/val"][-1], csv["error/val"][-1]) == pytest.approx((loss, error))
    known = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert known == {name: csv[name][-1] for name in (*GRADIENT, "loss/val", "error/val")}
    assert set(known) <= set(trainer.logged_metrics)


def test_the_rule_shows_its_log_and_theory(tmp_path):
    lit = L.LitRule(tp.Perceptron(3))
    fit(tmp_path, lit, loader(TRAIN), loader(VAL, 10), epochs=5)
    net = tp.Perceptron(3)
    result = tp.RuleTrainer(max_epochs=5).fit(net, *TRAIN)
    assert lit.result.log.equals(result.log)
    csv, curves = table(tmp_path), board(tmp_path)
    assert csv["mistakes"] == [record.mistakes for record in result.history]
    assert csv["error/train"] == [record.mistakes / 60 for record in result.history]
    assert csv["norm"] == [record.norm for record in result.history]
    assert csv["theory/mistakes"] == np.cumsum(csv["mistakes"]).tolist()
    assert csv["theory/upper"] == [record.upper for record in result.history]
    assert csv["loss/train"][-1] == pytest.approx(evaluation(net, TRAIN, plain.perceptron_criterion)[0], rel=1e-6)
    assert csv["margin"][-1] == pytest.approx(float(net.margin(*TRAIN)), rel=1e-6)
    assert csv["error/val"][-1] == evaluation(net, VAL, plain.perceptron_criterion)[1]
    assert all([step for step, _ in curves[tag]] == list(range(5)) for tag in (*GRADIENT, *THEORY))


# --- under the Trainer's options ---


def test_validation_within_an_epoch_and_every_second_epoch(tmp_path):
    fit(tmp_path / "half", L.LitClassifier(tp.Perceptron(3)), loader(TRAIN, 15), loader(VAL), val_check_interval=0.5)
    assert len(table(tmp_path / "half")["loss/val"]) == 6
    assert len(table(tmp_path / "half")["loss/train"]) == 3
    fit(tmp_path / "two", L.LitRule(tp.Perceptron(3)), loader(TRAIN), loader(VAL), epochs=4, check_val_every_n_epoch=2)
    assert len(table(tmp_path / "two")["loss/val"]) == 2
    assert len(table(tmp_path / "two")["loss/train"]) == 4


@BOTH
def test_several_loaders_have_lightnings_suffix(tmp_path, lit):
    trainer = fit(tmp_path, lit, loader(TRAIN), [loader(VAL, 10), loader(TRAIN, 7)])
    curves = board(tmp_path)
    for number, data in enumerate((VAL, TRAIN)):
        error = evaluation(lit.net, data, plain.perceptron_criterion)[1]
        assert float(trainer.callback_metrics[f"error/val/dataloader_idx_{number}"]) == pytest.approx(error, rel=1e-12)
        assert len(curves[f"loss/val/dataloader_idx_{number}"]) == 3
    tested = trainer.test(lit, [loader(VAL), loader(TRAIN)], verbose=False)
    assert [sorted(found) for found in tested] == [
        [f"{name}/test/dataloader_idx_{n}" for name in ("error", "loss")] for n in (0, 1)
    ]
    first, second = trainer.predict(lit, [loader(VAL), loader(TRAIN)])
    assert torch.equal(first[0], lit.net.predict(VAL[0]))
    assert torch.equal(second[0], lit.net.predict(TRAIN[0]))


def test_accumulated_gradients_count_every_sample_once(tmp_path):
    lit = L.LitClassifier(tp.Perceptron(3), lr=0.5)
    trainer = fit(tmp_path, lit, loader(TRAIN, 20), accumulate_grad_batches=3)
    assert trainer.global_step == 3
    expected = list(descent([TRAIN], 3, 0.5, plain.perceptron_criterion))  # three batches of 20 are one of 60
    assert table(tmp_path)["loss/train"] == pytest.approx([epoch["loss/train"] for epoch in expected], rel=1e-5)
    assert torch.allclose(lit.net.weight, expected[-1]["w"], rtol=1e-5)


def test_a_run_that_max_steps_cuts_short_logs_what_was_seen(tmp_path):
    lit, history = L.LitClassifier(tp.Perceptron(3), lr=0.5), History()
    trainer = fit(tmp_path, lit, loader(TRAIN, 20), max_steps=5, callbacks=[history])
    assert trainer.global_step == 5
    cut = list(descent(batches(), 1, 0.5, plain.perceptron_criterion))
    assert table(tmp_path)["error/train"][0] == cut[0]["error/train"]
    assert len(table(tmp_path)["error/train"]) == 2
    assert [epoch["error/train"] for epoch in history.epochs] == table(tmp_path)["error/train"]


@BOTH
def test_a_fast_run_for_developers(tmp_path, lit):
    trainer = pl.Trainer(fast_dev_run=True, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(lit, loader(TRAIN, 20), loader(VAL))
    assert trainer.global_step == 1
    assert set(trainer.callback_metrics) >= {"loss/train", "error/train", "loss/val", "error/val"}


# --- what a run reads ---


class Counted(TensorDataset):
    def __init__(self, *tensors):
        super().__init__(*tensors)
        self.read = []

    def __getitem__(self, index):
        self.read.append(index)
        return super().__getitem__(index)


@pytest.mark.parametrize("head", ["perceptron", "lms", "logistic"])
@pytest.mark.parametrize("update", ["batch", "sample"])
def test_nothing_is_read_but_what_is_learned(tmp_path, head, update):
    data = Counted(*TRAIN)
    shuffled = DataLoader(data, 10, shuffle=True, generator=torch.Generator().manual_seed(3))
    fit(
        tmp_path,
        L.LitClassifier(tp.Perceptron(3), head, lr=0.01, update=update),
        shuffled,
        epochs=1,
        limit_train_batches=2,
    )
    order = next(iter(DataLoader(range(60), 60, shuffle=True, generator=torch.Generator().manual_seed(3)))).tolist()
    assert data.read == order[:20]


class Endless(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        while True:
            x = torch.randn(3, generator=generator)
            yield x, torch.tensor(1 if x[0] > x[1] else -1)


def test_the_rule_learns_an_endless_stream_as_partial_fit_does(tmp_path):
    lit = L.LitRule(tp.Perceptron(3))
    fit(tmp_path, lit, DataLoader(Endless(), 16), max_steps=30, epochs=None)
    net, trainer = tp.Perceptron(3), tp.RuleTrainer()
    stream = iter(DataLoader(Endless(), 16))
    mistakes = sum(trainer.partial_fit(net, *next(stream)).mistakes for _ in range(30))
    assert torch.equal(lit.net.weight, net.weight)
    assert lit.result.mistakes == mistakes
    assert table(tmp_path)["mistakes"] == [mistakes]


# --- the rule, batch by batch ---


class Logs(pl.Callback):
    def __init__(self):
        self.logs, self.batches = [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.logs.append(pl_module.result.log)
        self.batches.append(batch)


@pytest.mark.parametrize("select", ["last", "averaged"])
@pytest.mark.parametrize("size", [7, 30])
def test_the_rule_learns_batches_as_partial_fit_does(tmp_path, select, size):
    logs = Logs()
    lit = L.LitRule(tp.Perceptron(3), select=select, class_weight={1: 2.0})
    fit(tmp_path, lit, loader(TRAIN, size, shuffle=True), loader(VAL), callbacks=[logs])
    net, trainer = tp.Perceptron(3), tp.RuleTrainer(select=select, class_weight={1: 2.0})
    results = [trainer.partial_fit(net, *batch) for batch in logs.batches]
    assert len(results) == 3 * math.ceil(60 / size)
    assert all(log.equals(result.log) for log, result in zip(logs.logs, results, strict=True))
    assert torch.equal(lit.net.weight, net.weight)
    made = np.array([result.mistakes for result in results]).reshape(3, -1).sum(1).tolist()
    assert table(tmp_path)["mistakes"] == made
    assert [record.mistakes for record in lit.result.history] == made
    assert (lit.result.verdict, lit.result.mistakes, lit.result.epochs) == (tp.Verdict.BUDGET, sum(made), 3)
    assert table(tmp_path)["error/val"][-1] == evaluation(net, VAL, plain.perceptron_criterion)[1]


def test_a_clean_epoch_of_batches_is_separated(tmp_path):
    lit = L.LitRule(tp.Perceptron(2))
    trainer = fit(tmp_path, lit, loader(tp.data.gate("AND"), 2, shuffle=True), epochs=100)
    assert lit.result.verdict is tp.Verdict.SEPARATED
    assert lit.result.history[-1].mistakes == 0
    assert trainer.current_epoch == lit.result.epochs < 100
    assert torch.equal(lit.net.predict(tp.data.gate("AND")[0]), tp.data.gate("AND")[1])


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"select": "pocket"}, "select='pocket'"),
        ({"select": "voted"}, "select='voted'"),
        ({"prove": True}, "prove=True"),
        ({"order": "shuffled"}, "order='shuffled'"),
        ({"bias_step": "radius"}, "bias_step='radius'"),
    ],
)
def test_what_batches_cannot_give_is_said_at_the_first(tmp_path, options, found):
    lit = L.LitRule(tp.Perceptron(3), **options)
    with pytest.raises(ValueError, match=f"{found}.*batch_size='full'"):
        fit(tmp_path, lit, loader(TRAIN, 20))
    assert not lit.net.weight.any()


def test_a_loader_that_changes_its_one_batch_is_noticed(tmp_path):
    class Turning:
        sampler = torch.utils.data.SequentialSampler([0])
        turned = False

        def __len__(self):
            return 1

        def __iter__(self):
            self.turned = not self.turned
            yield tuple(part.flip(0) if self.turned else part for part in TRAIN)

    with pytest.raises(ValueError, match="batch differs"):
        fit(tmp_path, L.LitRule(tp.Perceptron(3)), Turning())


# --- weights ---


def test_weights_of_classes_and_samples_are_factors_of_the_loss(tmp_path):
    weight = torch.rand(60, generator=torch.Generator().manual_seed(5))
    lit = L.LitClassifier(tp.Perceptron(3), "logistic", lr=0.5, class_weight={1: 3.0})
    trainer = fit(tmp_path, lit, loader((*TRAIN, weight)), loader((*TRAIN, weight)))

    def loss(s, y):
        return (tp.LogisticLoss(reduction="none")(s, y) * weight * torch.where(y > 0, 3.0, 1.0)).mean()

    expected = list(descent([TRAIN], 3, 0.5, loss))
    assert torch.allclose(lit.net.weight, expected[-1]["w"], rtol=1e-5)
    assert table(tmp_path)["loss/train"] == pytest.approx([epoch["loss/train"] for epoch in expected], rel=1e-6)
    at_the_end = float(loss(lit.net(TRAIN[0]).detach(), TRAIN[1]))
    assert float(trainer.callback_metrics["loss/val"]) == pytest.approx(at_the_end, rel=1e-6)


@pytest.mark.parametrize("given", [{1: 2.0, -1: 0.5}, tp.functional.balanced_weights(TRAIN[1])])
def test_weights_are_those_of_the_rule(tmp_path, given):
    weight = torch.rand(60, generator=torch.Generator().manual_seed(5))
    weight[::7] = 0.0
    net = tp.Perceptron(3)
    tp.RuleTrainer(max_epochs=3, class_weight=given).fit(net, *TRAIN, sample_weight=weight)
    rule = L.LitRule(tp.Perceptron(3), class_weight=given)
    sample = L.LitClassifier(tp.Perceptron(3), lr=1.0, update="sample", class_weight=given)
    one = L.LitClassifier(tp.Perceptron(3), lr=1.0, class_weight=given)
    for lit, size in ((rule, 60), (sample, 60), (one, 1)):
        fit(tmp_path, lit, loader((*TRAIN, weight), size))
        assert torch.allclose(lit.net.weight, net.weight, rtol=1e-5), type(lit)


def test_weights_that_balance_the_classes_are_the_rules_alone(tmp_path):
    lit, net = L.LitRule(tp.Perceptron(3), class_weight="balanced"), tp.Perceptron(3)
    fit(tmp_path, lit, loader(TRAIN))
    tp.RuleTrainer(max_epochs=3, class_weight=tp.functional.balanced_weights(TRAIN[1])).fit(net, *TRAIN)
    assert torch.equal(lit.net.weight, net.weight)
    with pytest.raises(TypeError, match=r"class_weight.*balanced_weights"):
        L.LitClassifier(tp.Perceptron(3), class_weight="balanced")


@pytest.mark.parametrize("kind", ["gradient", "sample", "rule"])
def test_a_batch_whose_weights_are_all_zero_changes_nothing_and_is_counted(tmp_path, kind):
    update = "sample" if kind == "sample" else "batch"
    lit = L.LitRule(tp.Perceptron(3)) if kind == "rule" else L.LitClassifier(tp.Perceptron(3), lr=1.0, update=update)
    weight = torch.ones(60)
    weight[:20] = 0.0
    fit(tmp_path / "all", lit, loader((*TRAIN, weight), 20), epochs=1)
    same = type(lit)(tp.Perceptron(3), **{name: lit.hparams[name] for name in lit.hparams if name != "net"})
    fit(tmp_path / "rest", same, loader(tuple(part[20:] for part in TRAIN), 20), epochs=1)
    assert torch.equal(lit.net.weight, same.net.weight)
    assert table(tmp_path / "all")["loss/train"][0] * 60 == pytest.approx(
        table(tmp_path / "rest")["loss/train"][0] * 40
    )
    with pytest.raises(ValueError, match="sample_weight is 0 everywhere"):
        tp.descend(tp.Perceptron(3), tp.LogisticHead(), *TRAIN, 0.1, sample_weight=torch.zeros(60))


# --- other batches ---


X, Y = TRAIN
BATCHES = {
    "no labels": (TensorDataset(X), TypeError, r"a batch must be \(x, y\) or \(x, y, sample_weight\), found Tensor"),
    "dict": ([{"x": 1}] * 60, TypeError, r"a batch must be \(x, y\) or \(x, y, sample_weight\), found dict"),
    "column": (TensorDataset(X, Y[:, None]), ValueError, r"\(20, 1\)"),
    "one-hot": (TensorDataset(X, torch.eye(3)[X.argmax(1)]), ValueError, r"\(20, 3\)"),
    "0/1": (TensorDataset(X, (Y + 1) // 2), ValueError, r"-1 and \+1, found \[?0, 1"),
}


@pytest.mark.parametrize("kind", LITS)
@pytest.mark.parametrize("batch", BATCHES)
def test_batches_that_are_not_samples_with_labels_are_refused(tmp_path, kind, batch):
    lit, (data, error, message) = LITS[kind](), BATCHES[batch]
    with pytest.raises(error, match=message):
        fit(tmp_path, lit, DataLoader(data, 20))
    assert not lit.net.weight.any()


def test_single_samples_and_batches_that_do_not_fit_are_refused(tmp_path):
    lit = L.LitClassifier(tp.Perceptron(3))
    with pytest.raises(ValueError, match="batch_size"):
        fit(tmp_path, lit, DataLoader(TensorDataset(*TRAIN), batch_size=None))
    for x, y in ((TRAIN[0], TRAIN[1][:5]), (TRAIN[0][:0], TRAIN[1][:0])):
        with pytest.raises(ValueError, match="one label per sample"):
            lit.validation_step((x, y))
    with pytest.raises(TypeError, match="a batch to predict must be x or"):
        lit.predict_step({"x": TRAIN[0]})


def test_options_of_a_scheduler_that_is_not_there_are_refused():
    for option in ({"monitor": "loss/val"}, {"interval": "step"}):
        with pytest.raises(ValueError, match="scheduler"):
            L.LitClassifier(tp.Perceptron(3), **option)


def test_the_best_validation_is_that_of_the_last_loader(tmp_path):
    lit, net = L.LitRule(tp.Perceptron(3), select="best-validation"), tp.Perceptron(3)
    fit(tmp_path, lit, loader(TRAIN), [loader((VAL[0], -VAL[1])), loader(VAL, 7)])
    result = tp.RuleTrainer(max_epochs=3, select="best-validation").fit(net, *TRAIN, validation=VAL)
    assert lit.result.history == result.history
    assert torch.equal(lit.net.weight, net.weight)


def test_a_validation_after_the_run_is_none_of_its_epochs(tmp_path):
    lit = L.LitRule(tp.Perceptron(3), select="best-validation")
    trainer = fit(tmp_path, lit, loader(TRAIN), loader(VAL))
    before = [record.validation_error for record in lit.result.history]
    trainer.validate(lit, loader((VAL[0], -VAL[1])), verbose=False)
    trainer.save_checkpoint(tmp_path / "kept.ckpt")
    saved = torch.load(tmp_path / "kept.ckpt")["rule"]["history"]
    assert [record[3] for record in saved] == before


def test_a_full_batch_of_a_memory_map_is_learned_as_from_memory(tmp_path):
    np.save(tmp_path / "X.npy", TRAIN[0].numpy())
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for make in (partial(L.LitClassifier, head="logistic", lr=0.5), L.LitRule):
        for size in ("full", 20):
            here, there = make(tp.Perceptron(3)), make(tp.Perceptron(3))
            fit(tmp_path / "here", here, L.SliceLoader(*TRAIN, size), epochs=2)
            fit(tmp_path / "there", there, L.SliceLoader(mapped, TRAIN[1], size), epochs=2)
            assert torch.equal(here.net.weight, there.net.weight)


def test_samples_in_parts_need_a_batch_size(tmp_path):
    parts = tp.data.CsrParts([csr_array(part.numpy()) for part in TRAIN[0].split(25)])
    with pytest.raises(ValueError, match="batch_size='full'"):
        L.SliceLoader(parts, TRAIN[1])
    here, there = L.LitClassifier(tp.Perceptron(3), lr=0.5), L.LitClassifier(tp.Perceptron(3), lr=0.5)
    fit(tmp_path / "here", here, L.SliceLoader(csr_array(TRAIN[0].numpy()), TRAIN[1], 20), epochs=2)
    fit(tmp_path / "there", there, L.SliceLoader(parts, TRAIN[1], 20), epochs=2)
    assert torch.equal(here.net.weight, there.net.weight)


# --- resumed runs ---


def made(kind):
    net = tp.Perceptron(3)
    return {
        "gradient": lambda: L.LitClassifier(tp.MLP(3, (4,), seed=0), "logistic", optimizer=torch.optim.Adam),
        "sample": lambda: L.LitClassifier(
            net, "logistic", lr=0.1, update="sample", scheduler=partial(CosineAnnealingLR, T_max=5)
        ),
        "rule": lambda: L.LitRule(net, order="shuffled", seed=3),
        "online": lambda: L.LitRule(net, select="averaged"),
    }[kind]()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gradient", "sample", "rule", "online"])
@pytest.mark.parametrize("every", ["epoch", "mid-epoch", "last batch"])
def test_a_resumed_run_has_the_curves_of_an_unbroken_one(tmp_path, kind, every):
    if kind == "rule" and every == "mid-epoch":
        pytest.skip("an epoch of the rule is one batch")
    batches = 1 if kind == "rule" else 4

    def train():
        return L.SliceLoader(*TRAIN, "full" if kind == "rule" else 15, "given")

    def run(folder, epochs, ckpt_path=None):
        when = {"every_n_epochs": 1} if every == "epoch" else {"every_n_train_steps": 2}
        keep = ModelCheckpoint(tmp_path / ("all" if folder == "whole" else "kept"), "{step}", save_top_k=-1, **when)
        fit(tmp_path / folder, made(kind), train(), loader(VAL), epochs, [keep], ckpt_path, enable_checkpointing=True)

    run("whole", 4)
    run("first", 3)
    begun = 1 if every == "mid-epoch" else 2
    step = 6 if every == "mid-epoch" else 2 * batches
    run("second", 4, tmp_path / "kept" / f"step={step}.ckpt")
    whole, second = board(tmp_path / "whole"), board(tmp_path / "second")
    before = whole["loss/train"][begun - 1][0]
    rest = {tag: [point for point in points if point[0] > before] for tag, points in whole.items()}
    assert {tag: points for tag, points in second.items() if tag != "hp_metric"} == {t: p for t, p in rest.items() if p}
    csv, left = table(tmp_path / "whole"), table(tmp_path / "second")
    assert {name: values for name, values in left.items() if values} == {
        n: csv[n][-len(left[n]) :] for n in left if left[n]
    }


# --- passes over a loader ---


@pytest.mark.parametrize("size", ["full", 10])
def test_a_sanity_check_leaves_nothing_out_of_the_first_validation(tmp_path, size):
    for name, val in (("slices", L.SliceLoader(*VAL, size)), ("stock", loader(VAL, None if size == "full" else size))):
        fit(tmp_path / name, L.LitClassifier(tp.Perceptron(3)), val=val, num_sanity_val_steps=2)
    assert len(table(tmp_path / "stock")["loss/val"]) == 3
    for tag in ("loss/val", "error/val"):
        assert table(tmp_path / "slices")[tag] == pytest.approx(table(tmp_path / "stock")[tag], rel=1e-6)


@pytest.mark.filterwarnings("ignore:Be aware that when using")
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_a_rule_with_another_lr_is_resumed(tmp_path, start):
    def module():
        net = tp.Perceptron(3)
        torch.nn.init.constant_(net.weight, start)
        return L.LitRule(net, lr=0.5, margin=0.25)

    whole, half, resumed = module(), module(), module()
    fit(tmp_path / "whole", whole, loader(TRAIN), epochs=4)
    saved = ModelCheckpoint(tmp_path, "last")
    fit(tmp_path / "half", half, loader(TRAIN), epochs=2, callbacks=[saved], enable_checkpointing=True)
    fit(tmp_path / "resumed", resumed, loader(TRAIN), epochs=4, ckpt_path=tmp_path / "last.ckpt")
    assert resumed.result.log.equals(whole.result.log)
    assert torch.equal(resumed.net.weight, whole.net.weight)
