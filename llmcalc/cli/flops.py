"""``llmcalc flops``: how many operations?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmcalc.calc.flops import FlopCount, flops, growth
from llmcalc.calc.training import ALL, Trained
from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit, model_block
from llmcalc.loading import Model, load
from llmcalc.report.report import Cell, Column, Report, Table
from llmcalc.units import counted, show_count, show_flops, show_operations, words

app = opt.verb_app()
ROUGH = (
    "rule of thumb: {} operations a parameter and token; attention, routing and the output matrix are not told apart"
)
OnlyTrained = Annotated[
    str,
    typer.Option("--trainable", metavar="NAME,...", help="Weights that are trained, by name; the others are frozen."),
]
LoraRank = Annotated[
    int,
    typer.Option("--lora-rank", parser=opt.whole("lora-rank", 1, 2**16), metavar="N",
                 help="Rank of the adapters of --method lora."),
]  # fmt: skip
LoraTargets = Annotated[str, typer.Option("--lora-targets", metavar="NAME,...", help="Matrices that get an adapter.")]


def _option(name: str, *choices: str, text: str) -> Any:
    return typer.Option(f"--{name}", parser=opt.pick(name, *choices), metavar="|".join(choices), help=text)


@app.command()
def verb(
    ctx: typer.Context,
    model: opt.OptionalModel = None,
    phase: Annotated[str, _option("phase", "prefill", "decode", "train", text="Which pass.")] = "prefill",
    tokens: opt.Tokens = 4096,
    past: Annotated[
        int | None, typer.Option("--past", parser=opt.tokens_of("past", 0), metavar="N", help="Cached tokens before.")
    ] = None,
    new: Annotated[int, typer.Option("--new", parser=opt.tokens_of("new"), metavar="N", help="New in decode.")] = 1,
    batch: opt.Batch = 1,
    lengths: opt.Lengths = None,
    lengths_file: opt.LengthsFile = None,
    encoder_tokens: opt.EncoderTokens = None,
    image_tokens: opt.ImageTokens = 0,
    convention: Annotated[str, _option("convention", "causal", "dense", text="Pairs seen, or computed.")] = "causal",
    logits: Annotated[str | None, _option("logits", "last", "all", text="Positions with logits.")] = None,
    mla: Annotated[
        str | None, _option("mla", "absorbed", "expanded", "reexpand", text="Form of latent attention.")
    ] = None,
    scan: Annotated[str | None, _option("scan", "recurrent", "chunked", text="Form of linear attention.")] = None,
    train_tokens: opt.TrainTokens = None,
    recompute: opt.Recomputed = "none",
    method: Annotated[str, _option("method", "full", "lora", text="What is trained.")] = "full",
    lora_rank: LoraRank = 16,
    lora_targets: LoraTargets = "q_proj,v_proj",
    trainable: OnlyTrained = "*",
    params: opt.Params = None,
    settings: opt.Set = None,
    as_family: opt.As = None,
    source: opt.Source = None,
    explain: opt.Explain = False,
    as_json: opt.Json = False,
    csv: opt.Csv = False,
    markdown: opt.Markdown = False,
    output: opt.Output = None,
    force: opt.Force = False,
) -> None:
    """How many operations does a pass take?"""
    form = Form(as_json, csv, markdown, output, force, explain)
    opt.one_of(model, params)
    asked: dict[str, Any] = {
        "phase": phase, "past": past, "new": new, "convention": convention, "logits": logits, "mla": mla, "scan": scan,
        "lengths": opt.lengths(lengths, lengths_file, ctx), "encoder_tokens": encoder_tokens,
        "image_tokens": image_tokens,
        "train_tokens": train_tokens, "recompute": recompute,
    }  # fmt: skip
    if model is None:
        emit(rough_report(params or 0, tokens, batch, asked), form)
        return
    found = load(model, source=source, as_family=as_family, overrides=opt.overrides(settings))
    trained = _trained(method, lora_rank, lora_targets, trainable)
    count = flops(found.architecture, tokens, batch, trained=trained, **asked)
    emit(report(found, count, {"tokens": tokens, "batch": batch, **asked, "method": method}, form.explain), form)


def _trained(method: str, rank: int, targets: str, trainable: str) -> Trained:
    if method == "lora":
        return Trained(tuple(targets.split(",")), rank)
    return ALL if trainable == "*" else Trained(tuple(trainable.split(",")))


def report(model: Model, count: FlopCount, inputs: dict[str, Any], explain: bool) -> Report:
    """The count as a report."""
    counting = count.run.counting
    told = [*model.assumptions, f"logits of {'all positions' if count.run.logits == 'all' else 'the last position'}"]
    if any(p.group == "scan" for p in count.products):
        told.append(f"scans {'token by token' if counting.scan == 'recurrent' else 'in blocks'}")
    if any(state.kind == "latent" for held in count.architecture.states for state in (held.state,)):
        told.append(f"latent attention {counting.latent}")
    beside = opt.without_effect(model.architecture, inputs.get("encoder_tokens"), inputs.get("image_tokens") or 0)
    warnings = [*model.warnings, *_warnings(model, count), *beside]
    return Report(
        "flops", model_block(model.provenance), inputs, results(count), headline(model, count),
        (kinds_table(count), rough_table(count), growth_table(count)), (count.figure,) if explain else (), told,
        warnings,
    )  # fmt: skip


def results(count: FlopCount) -> dict[str, object]:
    """The keys of the JSON document."""
    out: dict[str, object] = {
        name: getattr(count, name)
        for name in (
            "forward_flops", "matmul_flops", "attention_flops", "attention_dense_flops", "scan_flops", "lm_head_flops",
            "rough_2p_flops", "macs", "mtp_flops", "tokens",
        )
    }  # fmt: skip
    if step := count.training:
        out |= {
            "training_flops": step.training_flops, "backward_flops": step.backward_flops,
            "recompute_flops": step.recompute_flops, "adapter_flops": step.adapter_flops,
            "rough_6pd_flops": 6 * count.rough[1].params * count.tokens if count.rough else None,
        }  # fmt: skip
    exact = count.training.training_flops if count.training else count.forward_flops
    out["rough"] = [r._asdict() | {"exact_over_rough": exact / r.flops if r.flops else None} for r in count.rough]
    out["layers"] = [row._asdict() | {"flops": row.flops} for row in count.kinds]
    out["growth"] = [row._asdict() | {"attention_share": row.attention_share} for row in growth(count)]
    return out


def headline(model: Model, count: FlopCount) -> list[str]:
    """The answer in a few lines."""
    step = count.training
    exact = step.training_flops if step else count.forward_flops
    name = {"train": "forward and backward", "decode": "a decode step", "prefill": "prefill"}[count.phase]
    tokens = counted(count.tokens, "new token")
    lines = [
        f"{model.provenance.name} · {name} · {tokens} · {count.run.counting.convention} pairs",
        show_operations(exact),
        f"products with weights {show_flops(count.matmul_flops)} (of this the output matrix "
        f"{show_flops(count.lm_head_flops)}), attention {show_flops(count.attention_flops)}, "
        f"scans {show_flops(count.scan_flops)}",
    ]
    if count.attention_dense_flops is not None:
        lines.append(f"with masked pairs attention is {show_flops(count.attention_dense_flops)}")
    if step and step.recompute_flops:
        lines.append(f"of the total {show_flops(step.recompute_flops)} are computed again")
    if count.mtp_flops:
        lines.append(f"prediction heads beside the model: {show_flops(count.mtp_flops)} more a pass")
    return lines


def kinds_table(count: FlopCount) -> Table:
    """One row a kind of layer: the forward pass."""
    columns = (
        Column("stack", "stack"), Column("layers", "kind"), Column("weights", "matmul_flops", "count"),
        Column("attention", "attention_flops", "count"), Column("scans", "scan_flops", "count"),
        Column("together", "flops", "count"), Column("share", "share", "share"),
    )  # fmt: skip
    whole = sum(row.flops for row in count.kinds)
    rows: list[tuple[Cell, ...]] = [
        (
            r.stack,
            words(r.kind),
            r.matmul_flops,
            r.attention_flops,
            r.scan_flops,
            r.flops,
            r.flops / whole if whole else None,
        )
        for r in count.kinds
    ]
    parts = [(r.matmul_flops, r.attention_flops, r.scan_flops) for r in count.kinds]
    rows.append(("", "forward pass", *(sum(part[i] for part in parts) for i in range(3)), whole, None))
    return Table(columns, tuple(rows))


def rough_table(count: FlopCount) -> Table:
    """The rules of thumb, and how far they are off."""
    columns = (
        Column("rule of thumb", "name"), Column("parameters", "params", "params"), Column("FLOP", "flops", "count"),
        Column("exact / rule", "ratio"),
    )  # fmt: skip
    each = "6 x" if count.training else "2 x"
    exact = count.training.training_flops if count.training else count.forward_flops
    rows = [(f"{each} {words(r.name)}", r.params, r.flops, f"{exact / r.flops:.3f}") for r in count.rough if r.flops]
    return Table(columns, tuple(rows))


def growth_table(count: FlopCount) -> Table:
    """How much of the pass is attention as it gets longer."""
    columns = (
        Column("cached" if count.phase == "decode" else "tokens", "tokens", "count"),
        Column("FLOP", "forward_flops", "count"), Column("attention", "attention_flops", "count"),
        Column("share", "attention_share", "share"),
    )  # fmt: skip
    rows = [(g.tokens, g.forward_flops, g.attention_flops, g.attention_share) for g in growth(count)]
    return Table(columns, tuple(rows))


def rough_report(params: int, tokens: int, batch: int, asked: dict[str, Any]) -> Report:
    """The rules of thumb, where there is no config."""
    train = asked["phase"] == "train"
    count = asked["new"] * batch if asked["phase"] == "decode" else sum(asked["lengths"] or [tokens * batch])
    count = asked["train_tokens"] or count
    forward, each = 2 * params * count, 6 if train else 2
    out: dict[str, object] = {
        "rule_of_thumb": True,
        "forward_flops": forward,
        "rough_2p_flops": forward,
        "tokens": count,
    }
    if train:
        out |= {"training_flops": 3 * forward, "rough_6pd_flops": 3 * forward}
    lines = [
        f"{show_count(params)} parameters · {counted(count, 'token')} · by the rule of thumb",
        show_operations(each * params * count),
    ]
    table = Table(
        (Column("quantity", "quantity"), Column("FLOP", "flops", "count")), (("rule of thumb", each * params * count),)
    )
    return Report(
        "flops", None, {"params": params, "tokens": tokens, "batch": batch, **asked}, out, lines, (table,), (),
        [ROUGH.format(each)],
    )  # fmt: skip


def _warnings(model: Model, count: FlopCount) -> list[str]:
    limit = model.architecture.max_position_embeddings
    longest = max(share.step.past + share.step.new for share in count.run.shares)
    told = [f"operations of {name} are not counted: no reader describes it" for name in model.architecture.uncounted]
    if model.architecture.towers:
        told.append("towers do not run for text; their operations are not counted")
    if limit is not None and longest > limit:
        told.append(
            f"{longest:,} tokens are past the {limit:,} positions that the config names (max_position_embeddings)"
        )
    if count.attention_dense_flops is None:
        told.append("attention with masked pairs is not known for a kind of layer here")
    return told
