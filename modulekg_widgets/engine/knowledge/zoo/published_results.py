"""Published results of pretrained models, shipped with the package, with their source."""

from __future__ import annotations

import gzip
import io
from importlib.resources import files
from typing import TYPE_CHECKING

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable

if TYPE_CHECKING:
    import pandas as pd

SOURCES = {
    "timm": "github.com/huggingface/pytorch-image-models, folder results, 2026 (Apache-2.0)",
}
UNITS = {"acc@1": "%", "acc@5": "%", "latency": "ms"}
COLUMNS = ["model", "tag", "dataset", "target", "value", "image_size", "device"]
KEYS = ["model", "tag", "image_size"]


def published_results(source: str = "timm") -> pd.DataFrame:
    """Figures that are published of pretrained models, for `kg.add_results`.

    "timm": top-1 and top-5 accuracy in percent of 1,321 pretrained models on ImageNet-1K and five other test sets, and
    the latency of 1,180 architectures in ms: of one image on a CPU, and of an image in a large batch on a GPU. Source:
    the project's folder results (Apache-2.0); some families are not in it.

    Parameters
    ----------
    source : {"timm"}, default "timm"
        Whose results.

    Returns
    -------
    pandas.DataFrame
        A row per figure: `model` (the architecture), `tag` (how it was trained; missing for latencies), `dataset`,
        `target`, `value`, `image_size` (pixels), `device`; units by target, and the source, are in its `attrs`.

    Raises
    ------
    UnknownNameError
        For another source.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> found = mk.published_results("timm")
    >>> found[found["model"] == "resnet18"]["tag"].dropna().unique().tolist()[:2]
    ['a1_in1k', 'a2_in1k']
    """
    import pandas as pd

    if source not in SOURCES:
        raise UnknownNameError(
            f"no results of {printable(str(source))!r} are shipped: {closest_match_hint(str(source), SOURCES)}"
        )
    packed = files(__package__ or "").joinpath(f"{source}_results.csv.gz").read_bytes()
    wide = pd.read_csv(io.BytesIO(gzip.decompress(packed)), dtype={"model": str, "tag": str})
    found = wide.melt(id_vars=KEYS, var_name="what").dropna(subset=["value"])
    found[["dataset", "target", "device"]] = found["what"].str.split("|", expand=True).replace("", None)
    found = found.reindex(columns=COLUMNS).reset_index(drop=True)
    found.attrs.update(source=SOURCES[source], units=UNITS)
    return found
