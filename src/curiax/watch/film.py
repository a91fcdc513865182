"""Making a film: the strip of the bonus under each picture, maps for tasks that draw nothing, mp4 and gif."""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8

from .._errors import CuriaxError, OutputError, UsageError
from .._files import digest, read_bytes, sync_folder, write_whole
from .._types import Grid

Picture = UInt8[np.ndarray, "height width 3"]
GROUND, SUNKEN, TEXT, MUTED, BORDER = "#ffffff", "#f1f2ef", "#1c2127", "#59616c", "#dcdfe3"
#: Bytes of a film, far above what one has.
MOST_FILM = 2 << 30
#: The comment of a film: who made it, and the digest of the file, counted with zeros in its place.
SIGN, DIGITS = "made by curiax watch, ", 32
COMMENT = re.compile(SIGN.encode() + b"([0-9a-f]{%d})" % DIGITS)
#: Things are drawn so many times larger and shrunk, for smooth edges.
FINE = 3


def font(size: float) -> Any:
    """Matplotlib's own: there on every machine, with every letter that we need."""
    from PIL import ImageFont

    from .._matplotlib import matplotlib

    return ImageFont.truetype(Path(matplotlib().get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def mixed(colour: str, share: float) -> tuple[int, ...]:
    """A colour with white: `share` of the colour."""
    return tuple(round(255 - share * (255 - int(colour[k : k + 2], 16))) for k in (1, 3, 5))


def strip_height(height: int) -> int:
    """How much of a film's height the strip takes."""
    return 2 * round(height / 10)


class Strip:
    """The bonus of a whole clip as a filled curve: solid as far as it has been played, pale beyond, a line at now.

    It begins at 0, but where the bonus never falls to half of its largest it begins near its lowest: nothing could be
    seen of its course otherwise. Then the caption has the range. For the same reason it ends low where a few steps pay
    many times what all the others do, as the first steps of a game, whose older frames are black; the caption says so
    in these steps.
    """

    def __init__(
        self,
        bonus: Float[np.ndarray, " T"],
        ended: Bool[np.ndarray, " T"],
        title: str,
        colour: str,
        width: int,
        height: int,
        score: Float[np.ndarray, " T"] | None = None,
        score_name: str = "score",
    ) -> None:
        self._bonus, self._ended, self._title, self._colour = bonus, ended, title, colour
        #: The score of the episode after each step; None where there is no such thing.
        self._score, self._score_name = score, score_name
        self._width, self._height = width, height
        self._font = font(max(9.0, min(0.16 * height, width / 42)))
        self._margin = round(0.02 * width)
        self._top = round(2.2 * self._font.size)
        most = float(np.max(np.abs(bonus), initial=0.0))
        self._decimals = 3 - math.ceil(math.log10(most)) if most > 0 else 3
        low, high = float(bonus.min()), float(bonus.max())
        self._cut = high / 2 < low < 0.999 * high
        usual = float(np.quantile(bonus, 0.9))
        most_shown = 2 * usual if 0 < usual < high / 10 else high
        self._range = (low - 0.15 * (high - low) if self._cut else min(0.0, low), max(0.0, most_shown))
        self._pale, self._solid = self._curve(0.28, 0.5), self._curve(0.85, 1.0)

    def _across(self, step: int) -> float:
        """Where on the strip so many steps have been played."""
        return self._margin + (self._width - 2 * self._margin) * step / len(self._bonus)

    def _curve(self, fill: float, line: float) -> Any:
        """The whole curve in one strength of colour."""
        from PIL import Image, ImageDraw

        image = Image.new("RGB", (self._width * FINE, self._height * FINE), GROUND)
        pen = ImageDraw.Draw(image)
        low, high = self._range
        top, bottom = self._top * FINE, (self._height - self._margin) * FINE
        heights = bottom - (np.minimum(self._bonus, high) - low) / ((high - low) or 1.0) * (bottom - top)
        floor = bottom - (max(0.0, low) - low) / ((high - low) or 1.0) * (bottom - top)
        for step in np.flatnonzero(self._ended[:-1]) + 1:
            x = self._across(int(step)) * FINE
            pen.line([(x, top), (x, bottom)], fill=BORDER, width=FINE)
        curve = [(self._across(k + 1) * FINE, y) for k, y in enumerate(heights)]
        curve.insert(0, (self._across(0) * FINE, curve[0][1]))
        pen.polygon([(curve[0][0], floor), *curve, (curve[-1][0], floor)], fill=mixed(self._colour, fill))
        pen.line(curve, fill=mixed(self._colour, line), width=2 * FINE, joint="curve")
        pen.line([(0, 0), (self._width * FINE, 0)], fill=BORDER, width=2 * FINE)
        return image.resize((self._width, self._height), Image.Resampling.BOX)

    def picture(self, played: int) -> Picture:
        """The strip after so many steps."""
        from PIL import ImageDraw

        image, x = self._pale.copy(), round(self._across(played))
        image.paste(self._solid.crop((0, 0, x, self._height)), (0, 0))
        pen = ImageDraw.Draw(image)
        pen.line([(x, self._top - 3), (x, self._height - self._margin + 2)], fill=TEXT, width=1)
        before = np.flatnonzero(self._ended[: max(played - 1, 0)])
        text = f"step {played - (before[-1] + 1 if len(before) else 0)}"
        if self._ended[:-1].any():
            text = f"episode {len(before) + 1}, {text}"
        if played:
            text += f" · bonus {self._number(self._bonus[played - 1])}"
            if self._bonus[played - 1] > max(0.0, self._range[1]):
                text += " (above the strip)"
        if played and self._cut:
            text += f" ({self._number(self._bonus.min())}–{self._number(self._bonus.max())})"
        if self._score is not None:
            text = f"{self._score_name} {self._score[played - 1] if played else 0.0:,.0f} · {text}"
        y, right = 0.62 * self._font.size, self._width - self._margin
        pen.text((right, y), text, fill=TEXT, font=self._font, anchor="ra")
        room = right - self._margin - pen.textlength(text, self._font) - self._font.size
        title = self._title
        while title and pen.textlength(title, self._font) > room:
            title = title[:-2].rstrip() + "…" if len(title) > 2 else ""
        pen.text((self._margin, y), title, fill=MUTED, font=self._font, anchor="la")
        return np.asarray(image)

    def _number(self, value: float) -> str:
        """A bonus with as many digits as the clip's largest needs."""
        return f"{value:.2e}" if self._decimals > 7 else f"{value:.{max(0, self._decimals)}f}"


def screen_picture(draw: Callable[[int, int], np.ndarray | None], width: int, height: int) -> Picture:
    """A game as on a television, whose screen is four units wide and three high; its machine's pixels are no squares.

    `draw` makes a picture of any size.
    """
    from PIL import Image

    across, up = min(width, round(height * 4 / 3)), min(height, round(width * 3 / 4))
    # Larger, then shrunk: all of the machine's pixels look the same size then.
    drawn = draw(across * FINE, up * FINE)
    assert drawn is not None, "machines always have a screen"
    screen = Image.fromarray(drawn).reduce(FINE)
    image = Image.new("RGB", (width, height), TEXT)
    image.paste(screen, ((width - across) // 2, (height - up) // 2))
    return np.asarray(image)


def map_picture(
    grid: Grid, path: Float[np.ndarray, "T 2"], begun: int, colour: str, width: int, height: int
) -> Picture:
    """The tracked point on a grid of two axes, visited cells shaded, the way of the last steps behind it.

    `begun` is where on the path the episode began.
    """
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width * FINE, height * FINE), GROUND)
    pen, letters = ImageDraw.Draw(image), font(0.045 * height * FINE)
    left, right = 0.14 * width * FINE, 0.96 * width * FINE
    top, bottom = 0.04 * height * FINE, 0.86 * height * FINE
    (low_x, high_x), (low_y, high_y) = ((axis.low, axis.high) for axis in grid.axes)

    def spot(points: np.ndarray) -> np.ndarray:
        inside = np.clip(points, (low_x, low_y), (high_x, high_y))
        share = (inside - (low_x, low_y)) / np.array([high_x - low_x, high_y - low_y])
        return np.stack([left + share[..., 0] * (right - left), bottom - share[..., 1] * (bottom - top)], axis=-1)

    # Drawn in honest parts even where the paper's cells have one index more.
    parts = np.array([axis.parts for axis in grid.axes])
    share = (path - (low_x, low_y)) / np.array([high_x - low_x, high_y - low_y])
    visited = {tuple(cell) for cell in np.clip((share * parts).astype(int), 0, parts - 1)}
    closed = {divmod(cell, grid.shape[1]) for cell in grid.closed}
    for i in range(parts[0]):
        for j in range(parts[1]):
            (x0, y1), (x1, y0) = spot(
                np.stack([[grid.axes[k].edges[c + e] for k, c in ((0, i), (1, j))] for e in (0, 1)])
            )
            shade = MUTED if (i, j) in closed else mixed(colour, 0.35) if (i, j) in visited else SUNKEN
            pen.rectangle((x0, y0, x1, y1), fill=shade, outline=GROUND, width=FINE)
    way = [tuple(point) for point in spot(path[max(begun, len(path) - 30) :])]
    if len(way) > 1:
        pen.line(way, fill=mixed(colour, 0.8), width=2 * FINE, joint="curve")
    pen.circle(way[-1], 0.018 * height * FINE, fill=TEXT, outline=GROUND, width=FINE)
    names = [axis.name for axis in grid.axes]
    pen.text(((left + right) / 2, bottom + 0.8 * letters.size), names[0], fill=MUTED, font=letters, anchor="ma")
    side = Image.new("L", (round(bottom - top), round(1.6 * letters.size)), 0)
    ImageDraw.Draw(side).text((side.width / 2, 0), names[1], fill=255, font=letters, anchor="ma")
    turned = side.rotate(90, expand=True)
    image.paste(MUTED, (round(left - 2.2 * letters.size), round(top)), turned)
    return np.asarray(image.resize((width, height), Image.Resampling.BOX))


def bars_picture(obs: Float[np.ndarray, " size"], colour: str, width: int, height: int) -> Picture:
    """What the agent sees as bars, up and down from 0: for tasks with nothing else to show."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, height), GROUND)
    pen, values = ImageDraw.Draw(image), np.clip(obs[:64] / 3.0, -1.0, 1.0)
    wide, middle = 0.9 * width / len(values), height / 2
    for k, value in enumerate(values):
        x, y = 0.05 * width + k * wide, middle - 0.45 * height * float(value)
        pen.rectangle((x, min(y, middle), x + 0.8 * wide, max(y, middle)), fill=colour)
    pen.line([(0, middle), (width, middle)], fill=BORDER, width=1)
    return np.asarray(image)


def ffmpeg() -> str | None:
    """The encoder's program, if it is installed."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        return None


def encode(frames: Sequence[Picture] | Any, out: Path, fps: int, tell: Callable[[int], None]) -> None:
    """Write the frames as mp4 or gif, by the file's ending; the file is there complete or not at all.

    Its comment says who made it.
    """
    refuse_to_replace(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise OutputError(f"cannot write to {out.parent}: {error.strerror or error}. Choose another --out.") from None
    try:
        # It is made where the system clears up: a kill while it is encoded leaves nothing beside the run.
        with tempfile.TemporaryDirectory(prefix="curiax-") as folder:
            part = Path(folder) / f"film{out.suffix.lower()}"
            (encode_mp4 if out.suffix.lower() == ".mp4" else encode_gif)(frames, part, fps, tell)
            seal(part)
            refuse_to_replace(out)  # encoding takes its time
            write_whole(out, part.read_bytes())
            sync_folder(out.parent)
    except OSError as error:
        raise CuriaxError(f"the film could not be written to {out}: {error.strerror or error}.") from error


def seal(film: Path) -> None:
    """Put the digest of a film into its comment."""
    data = film.read_bytes()
    if (comment := COMMENT.search(data)) is not None:
        film.write_bytes(data[: comment.start(1)] + digest(data).encode() + data[comment.end(1) :])


def is_sealed(data: bytes) -> bool:
    """Whether a film is as it was made, to the byte."""
    if (comment := COMMENT.search(data)) is None:
        return False
    blank = data[: comment.start(1)] + b"0" * DIGITS + data[comment.end(1) :]
    return digest(blank).encode() == comment[1]


def refuse_to_replace(out: Path) -> None:
    """Refuse a place where anything lies but a film as Curiax made it; a link is somebody's too."""
    if not os.path.lexists(out):
        return
    with contextlib.suppress(OutputError):
        if not out.is_symlink() and is_sealed(read_bytes(out, MOST_FILM, "")):
            return
    raise OutputError(
        f"{out} is there already and is not as `curiax watch` makes films: choose another --out, or remove it."
    )


def encode_mp4(frames: Any, out: Path, fps: int, tell: Callable[[int], None]) -> None:
    """H.264 in the pixel format that every player knows."""
    program = ffmpeg()
    if program is None:
        raise UsageError("an mp4 needs an encoder: pip install 'curiax[video]', or give --out a name ending in .gif.")
    height, width = frames[0].shape[:2]
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    codec = [
        "-metadata",
        f"comment={SIGN}{'0' * DIGITS}",
        "-an",
        "-c:v",
        "libx264",
        "-preset",
        "medium",
        "-crf",
        "20",
        "-pix_fmt",
        "yuv420p",
    ]
    command = [program, "-y", "-v", "error", *source, *codec, "-movflags", "+faststart", str(out)]
    with tempfile.TemporaryFile() as complaints:
        with (
            contextlib.suppress(BrokenPipeError),
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=complaints) as process,
        ):
            assert process.stdin is not None
            try:
                for k in range(len(frames)):
                    process.stdin.write(np.ascontiguousarray(frames[k]).tobytes())
                    tell(k + 1)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            complaints.seek(0)
            lines = complaints.read().decode(errors="replace").strip().splitlines()
            raise CuriaxError(f"the encoder failed: {lines[-1] if lines else f'exit code {process.returncode}'}")


def encode_gif(frames: Any, out: Path, fps: int, tell: Callable[[int], None]) -> None:
    """A film that repeats for ever, in 255 colours of its own."""
    from PIL import Image

    count = len(frames)
    samples = np.concatenate([frames[k] for k in sorted({0, count // 3, 2 * count // 3, count - 1})])
    palette = Image.fromarray(samples).quantize(255, Image.Quantize.MEDIANCUT)

    def images() -> Iterator[Image.Image]:
        for k in range(count):
            # Without dithering, whose pattern would crawl from frame to frame.
            yield Image.fromarray(frames[k]).quantize(palette=palette, dither=Image.Dither.NONE)
            tell(k + 1)

    every = images()
    # The format counts hundredths of a second, and browsers slow down below two of them.
    pause = max(20, 10 * round(100 / fps))
    next(every).save(
        out,
        format="GIF",
        save_all=True,
        append_images=every,
        duration=pause,
        loop=0,
        optimize=False,
        comment=SIGN + "0" * DIGITS,
    )
