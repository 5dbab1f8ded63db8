"""Makes a ratings file from tables of ratings, in bounded memory; an error leaves no file.

`Ingest` does so in stages, and every stage leaves a table in a DuckDB session. Its steps are in
`dsgmcmc.input.load` (a table ``raw`` of all ratings), `dsgmcmc.features.encoders` and
`dsgmcmc.prepare.arrange` (numbered, merged, split and sorted ratings). Chains divide the rows and
columns of the file into blocks (`dsgmcmc.model.blocks`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from dsgmcmc.errors import InputError
from dsgmcmc.features.described import (
    Description,
    DescriptionTable,
    check_kinds,
    describe,
    is_of_names,
    load_description,
)
from dsgmcmc.features.encoders import FeaturesReport, encode
from dsgmcmc.features.of_names import describe_names
from dsgmcmc.features.of_parts import encode_parts, joined_features, joined_reports
from dsgmcmc.input import load
from dsgmcmc.input.load import LoadedTable, RatingsTable
from dsgmcmc.input.odd_columns import NOTHING
from dsgmcmc.input.roles import CONTEXT, NAMED_ROLES, find_doubts, parse_columns
from dsgmcmc.input.sources.labelled import NothingUnstoredError
from dsgmcmc.input.sources.tables import first_column
from dsgmcmc.prepare import arrange, doubts
from dsgmcmc.prepare.arrange import Entities, SortedRatings
from dsgmcmc.prepare.merging import Merging, Repeated, merge_ratings
from dsgmcmc.prepare.missing_groups import Holes, find_holes
from dsgmcmc.prepare.not_rated import Codes
from dsgmcmc.prepare.reading import reading_of
from dsgmcmc.prepare.said_levels import SaidLevels
from dsgmcmc.prepare.settings import PrepareSettings
from dsgmcmc.prepare.several import refuse_repeated_rows, refuse_unlike
from dsgmcmc.prepare.summary import Summary
from dsgmcmc.ratings.description import doubts_about_test
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import Directions, Features, MatrixNames
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.ratings.writer import Origin, write_slabs
from dsgmcmc.settings import named
from dsgmcmc.storage.files import check_target
from dsgmcmc.tables.session import Session, interruptible, open_session
from dsgmcmc.tables.usual import joined

Reporter = Callable[[str], None]


class ParsedSettings(NamedTuple):
    """What settings mean that are given as text.

    Attributes
    ----------
    reading : Reading
        How the ratings are read.
    descriptions : dict of str to Description
        Features by "user" and "item". Users and items with features belong to the matrix even
        without ratings.
    groups : list of str
        Columns whose values are groups that are held out as a whole.
    levels : Description or None
        Table of the levels of items.
    """

    reading: Reading
    descriptions: dict[str, Description]
    groups: list[str]
    levels: Description | None

    @classmethod
    def parse(cls, settings: PrepareSettings) -> Self:
        """Parse settings; raise InputError if a text has another form."""
        if settings.matrix:
            columns = parse_columns(settings.columns, ("user",))
        else:
            columns = parse_columns(settings.columns)
        if CONTEXT in columns:
            _refuse_context(settings)
        descriptions = describe(
            {"user": settings.user_features, "item": settings.item_features},
            settings.feature_kinds,
            settings.separator,
        )
        descriptions = _with_columns(descriptions, columns)
        levels = _with_columns(describe({"item": settings.levels}, None), columns)
        groups = []
        if settings.hold_out_by is not None:
            groups = [column.strip() for column in settings.hold_out_by.split("+")]
        if not all(groups):
            raise InputError(
                f"{named('hold_out_by')} {settings.hold_out_by}: expected COLUMN+COLUMN"
            )
        return cls(reading_of(settings, columns), descriptions, groups, levels.get("item"))


def _with_columns(
    described: Mapping[str, Description], columns: Mapping[str, Any]
) -> dict[str, Description]:
    """Return descriptions whose names are in the same columns as in the ratings."""
    descriptions = {}
    for entity, description in described.items():
        column = columns.get(entity)
        if not description.label and isinstance(column, str):
            description = description._replace(label=column)
        descriptions[entity] = description
    return descriptions


def _refuse_context(settings: PrepareSettings) -> None:
    """Raise InputError if a context does not go with other settings."""
    others = ("user_features", "item_features", "timestamps")
    found = [named(name) for name in others if getattr(settings, name)]
    if found:
        raise InputError(
            f"{named('columns')} context=... does not go with {joined(found)}: say on which side"
            " the third column is: user=U+C,item=I or user=U,item=I+C (docs/three-way.md)"
        )


def prepare_ratings(
    inputs: Sequence[str | Path | RatingsTable],
    out: str | os.PathLike[str],
    *,
    report: Reporter = lambda stage: None,
    **options: Any,
) -> Summary:
    """Make a ratings file from tables of ratings.

    Raises InputError if an argument or an input file is invalid; then no file is written.

    Parameters
    ----------
    inputs : files, or tables of arrays
    report : callable(stage)
        Called when a stage begins.
    **options
        Fields of `PrepareSettings`.
    """
    return make_ratings_file(inputs, out, PrepareSettings.from_settings(options), report=report)


def make_ratings_file(
    inputs: Sequence[str | Path | RatingsTable],
    out: str | os.PathLike[str],
    settings: PrepareSettings,
    *,
    report: Reporter,
) -> Summary:
    """Make a ratings file as `prepare_ratings` does, with checked settings."""
    settings.check()
    parsed = ParsedSettings.parse(settings)
    tables = [table if isinstance(table, RatingsTable) else Path(table) for table in inputs]
    target = Path(out)
    files = tables if settings.test is None else [*tables, settings.test]
    if any(isinstance(file, Path) and file.resolve() == target.resolve() for file in files):
        raise InputError(f"{target} is one of the inputs; give another name for the output")
    check_target(target, settings.force)
    with open_session(target.parent, settings.memory) as db:
        ingest = Ingest(db, settings, parsed, inputs=tables, out=target, report=report)
        return interruptible(db, ingest.run)


class RawRatings(NamedTuple):
    """What `Ingest.read` leaves: the table ``raw`` of all ratings.

    Attributes
    ----------
    tables : list of RatingsTable
        The tables that were read.
    loaded : list of LoadedTable
        What is known of them.
    left_out : int
        Number of ratings that were left out because their values mean "not rated".
    notes : list of str
        Files with times in a smaller unit than seconds, files whose ratings are all equal, and why
        the order in time is not kept.
    in_order : bool
        Whether the order of the ratings in time is kept.
    """

    tables: list[RatingsTable]
    loaded: list[LoadedTable]
    left_out: int
    notes: list[str]
    in_order: bool

    @property
    def has_tests(self) -> bool:
        """Whether one of the tables has the test ratings."""
        return any(table.test for table in self.tables)


class Findings(NamedTuple):
    """What `Ingest.examine` finds: values that mean "not rated", and doubts about columns."""

    codes: Codes
    doubts: list[str]


class EncodedFeatures(NamedTuple):
    """What `Ingest.encode` leaves: features and their reports by "user" and "item"."""

    features: dict[str, Features]
    reports: dict[str, FeaturesReport]

    def add(self, entity: str, of_parts: Features | None, report: FeaturesReport) -> None:
        """Add the features of the parts of names; None if no part can be a feature."""
        if of_parts is not None and entity in self.features:
            of_parts = joined_features(entity, self.features[entity], of_parts)
        if of_parts is not None:
            self.features[entity] = of_parts
        if entity in self.reports:
            report = joined_reports(self.reports[entity], report)
        self.reports[entity] = report


class Ingest:
    """Makes a ratings file from tables of ratings; every method is a stage.

    Parameters
    ----------
    db : Session
        An open session, in which the stages leave tables for the next ones.
    settings : PrepareSettings
    parsed : ParsedSettings
        What the settings mean that are given as text.
    inputs : files, or tables of arrays
    out : Path
        The ratings file.
    report : callable(stage)
        Called when a stage begins.
    """

    def __init__(
        self,
        db: Session,
        settings: PrepareSettings,
        parsed: ParsedSettings,
        *,
        inputs: Sequence[Path | RatingsTable],
        out: Path,
        report: Reporter,
    ) -> None:
        self.db = db
        self.settings = settings
        self.parsed = parsed
        self.inputs = inputs
        self.out = out
        self.report = report
        self.has_context = CONTEXT in parsed.reading.columns
        self.grouped_by = tuple(parsed.groups)  # columns of groups that are held out

    def run(self) -> Summary:
        """Make the file; return its summary."""
        raw = self.read(self.open())
        labels = _labels(raw.tables[0])
        said = None
        if self.parsed.levels is not None:
            said = SaidLevels.read(self.db, self.parsed.levels, labels["item"])
        described = self.describe(labels)
        entities = self.number(described, labels)
        findings = self.examine(raw, entities)
        encoded = self.encode(described, entities)
        repeated = self.merge(raw, entities)
        if self.settings.duplicates is None:
            refuse_repeated_rows(raw.tables, repeated.removed + repeated.kept)
        holes = self.hold_out_as_missing(raw, entities, repeated)
        test_condition = self.split(raw, repeated)
        ordered = self.sort(raw, entities, test_condition, repeated)
        item_levels = ""
        if said is None:
            item_levels = doubts.describe_item_levels(
                self.db, findings.codes.values, transposed=entities.transposed
            )
        attributes = self.write(
            raw,
            entities,
            encoded,
            ordered,
            repeated=repeated,
            item_levels=bool(item_levels),
            said=said,
        )
        columns, others = _describe(raw.tables, self.settings.timed)
        found = list(findings.doubts)
        if item_levels:
            found.append(
                f"{item_levels}: by default every item has its own levels"
                f" ({named('likelihood')} ordinal-logit, {named('thresholds')} item); other"
                " likelihoods predict beyond them"
            )
        with Ratings(self.out) as written:
            found += doubts_about_test(written)
        found += raw.notes
        if said is not None:
            found += said.doubts
        if repeated.removed and self.settings.of_repeated in ("first", "last"):
            found += load.find_untimed(raw.tables, raw.loaded)
        if repeated.removed and self.settings.of_repeated == "mean":
            found.append(
                f"the mean of several measurements counts like one, as their numbers are lost: keep"
                f" them by {named('duplicates')} keep"
            )
        for about in encoded.reports.values():
            found += about["doubts"]
        return Summary(
            path=str(self.out),
            users=entities.user,
            items=entities.item,
            ratings=ordered.n,
            train=attributes["nnz"],
            test=attributes["nnz_test"],
            mean=attributes["mean"],
            minimum=float(attributes["min"]),
            maximum=float(attributes["max"]),
            resolution=attributes["resolution"],
            content_sha256=attributes["content_sha256"],
            columns=columns,
            other_columns=others,
            features=encoded.reports,
            not_rated=findings.codes.share,
            codes=findings.codes.values,
            missing=raw.left_out,
            duplicates=repeated.removed,
            replicates=repeated.kept,
            bounded=repeated.bounded,
            order=load.describe_order(raw.tables),
            dates=list(dict.fromkeys(part.dates for part in raw.loaded if part.dates)),
            holes=holes,
            doubts=found,
        )

    def open(self) -> list[RatingsTable]:
        """Find the format and the columns of every table."""
        sources = list(self.inputs)
        if self.settings.test is not None:
            sources.append(self.settings.test)
        tables = self._open_all(sources)
        if self.settings.test is not None:
            tables[-1] = tables[-1]._replace(test=True)
        refuse_unlike(tables, len(self.inputs), self.settings.duplicates)
        return tables

    def _open_all(self, sources: Sequence[Path | RatingsTable]) -> list[RatingsTable]:
        """Open all tables; `unstored` is about those that do not store all cells.

        Raises InputError if all of them do.
        """
        tables = []
        faults = []
        for source in sources:
            try:
                tables.append(self._open(source, self.parsed.reading))
            except NothingUnstoredError as fault:
                faults.append(fault)
                if len(faults) == len(sources):
                    raise faults[0] from None
                tables.append(self._open(source, self.parsed.reading._replace(unstored=None)))
        return tables

    def _open(self, source: Path | RatingsTable, reading: Reading) -> RatingsTable:
        table = source
        if not isinstance(table, RatingsTable):
            opened = load.open_ratings(self.db, table, reading, timed=self.settings.timed)
            said = self.parsed.reading._replace(skipped=opened.file.skipped)
            if said.columns and opened.heading:  # later files may have it in another place
                said = said._replace(columns={"user": opened.heading})
            table = opened._replace(reading=said)
        if self.parsed.groups:
            return load.find_groups(table, self.parsed.groups)
        return table

    def read(self, tables: list[RatingsTable]) -> RawRatings:
        """Read all tables into ``raw``, without the ratings that mean "not rated"."""
        loaded = []
        load.create_raw(self.db, tables)
        for table in tables:
            self.report(f"reading {table.file.path.name}")
            part = load.load(
                self.db,
                table,
                timed=self.settings.timed,
                missing=self.parsed.reading.missing,
                report=self.report,
            )
            loaded.append(part)
        notes = [part.unit for part in loaded if part.unit] + load.find_constant(tables, loaded)
        weightless = sum(part.weightless for part in loaded)
        left_out = doubts.leave_out(self.db, self.parsed.reading.missing, weightless)
        if weightless:
            notes.append(f"{weightless:,} ratings have the weight 0 and are left out")
        left_out += sum(part.left_out for part in loaded)
        in_order = self.settings.timestamps
        if self.settings.try_times and load.have_times(tables):
            untimed = load.describe_untimed(self.db, tables, loaded)
            in_order = not untimed
            if untimed:
                notes.append(f"{untimed}; models with time effects are left out")
        return RawRatings(tables, loaded, left_out, notes, in_order)

    def describe(self, labels: Mapping[str, tuple[str, ...]]) -> dict[str, DescriptionTable]:
        """Read the tables that describe users and items, given the columns of their names."""
        self.report("numbering users and items")
        described = {}
        for entity, description in self.parsed.descriptions.items():
            if is_of_names(description):
                described[entity] = describe_names(self.db, entity, labels[entity], description)
                continue
            if len(labels[entity]) > 1:
                description = description._replace(parts=labels[entity])
            described[entity] = load_description(self.db, entity, description)
        check_kinds(described, self.parsed.descriptions)
        return described

    def number(
        self, described: Mapping[str, DescriptionTable], labels: Mapping[str, tuple[str, ...]]
    ) -> Entities:
        """Give every user and item a number, in the tables ``users`` and ``items``."""
        arrange.refuse_scale(self.db)
        return arrange.number_entities(self.db, self.settings.seed, described, labels)

    def examine(self, raw: RawRatings, entities: Entities) -> Findings:
        """Look for values that mean "not rated" or are slips, and for columns taken by mistake."""
        codes = doubts.codes_of_ratings(self.db)
        if self.settings.unstored == "zero" and codes.values == [0]:  # the user has said so
            codes = Codes([], ratings=0, share=0.0)
        odd = []
        for table, part in zip(raw.tables, raw.loaded, strict=True):
            if not table.test and NOTHING not in table.reading.ignore:
                part.odd.refuse(table.file.path)
                odd += part.odd.doubts
        is_explained = any(part.odd.explains_codes for part in raw.loaded)
        if is_explained:  # of what is far, it is the column that is named
            codes = Codes([], ratings=0, share=0.0)
        n, low, high = self.db.execute(
            "SELECT count(*), min(rating), max(rating) FROM raw"
        ).fetchall()[0]
        first = []
        if not all(table.is_wide for table in raw.tables):  # cells of a matrix are no ids
            first = first_column(self.db, "SELECT rating FROM raw LIMIT 1000")
        found = [*odd, str(codes)]
        if not is_explained:
            found.append(doubts.find_far_ratings(self.db, codes.values))
        found.append(doubts.find_limits(self.db, codes.values))
        found += find_doubts(entities.sizes, n=n, first=first, low=low, high=high)
        return Findings(codes, [doubt for doubt in found if doubt])

    def encode(
        self, described: Mapping[str, DescriptionTable], entities: Entities
    ) -> EncodedFeatures:
        """Turn the descriptions of users and items, and the parts of names, into features."""
        features = {}
        reports = {}
        for entity, description in self.parsed.descriptions.items():
            n = entities.sizes[entity]
            features[entity], reports[entity] = encode(self.db, described[entity], description, n)
        encoded = EncodedFeatures(features, reports)
        if self.settings.part_features:
            for entity, labels in entities.parts.items():
                found, report = encode_parts(self.db, entity, labels, entities.sizes[entity])
                encoded.add(entity, found, report)
        return encoded

    def hold_out_as_missing(self, raw: RawRatings, entities: Entities, repeated: Repeated) -> str:
        """Say if cells are missing in groups, and ratings are not held out in groups.

        With a context, whose side depends on what is held out, the ratings get these groups.
        """
        if self.grouped_by or not (self._holds_out_pairs(raw) or self.has_context):
            return ""
        holes = find_holes(self.db, entities, replicates=repeated.kept, has_tests=raw.has_tests)
        if holes is None:
            return ""
        if not self.has_context:
            return holes.advice()
        if self.settings.temporal:
            return ""
        self._group(entities, holes)
        return holes.note()

    def _group(self, entities: Entities, holes: Holes) -> None:
        """Give ratings the groups with which cells are missing."""
        parts = [(direction.entity, direction.part) for direction in holes.group]
        arrange.group_by_parts(self.db, self.settings.seed, entities, parts)
        self.grouped_by = tuple(holes.columns)

    def merge(self, raw: RawRatings, entities: Entities) -> Repeated:
        """Merge or keep repeated ratings, from ``raw`` to ``cells``."""
        self.report("matching names")
        merging = Merging(
            seed=self.settings.seed,
            duplicates=self.settings.duplicates,
            measures=load.measures_of(self.db),
            grouped=bool(self.grouped_by),
            timed=raw.in_order or self.settings.temporal,
            keyed=self._holds_out_pairs(raw) or self.settings.temporal,
            tested=raw.has_tests,
        )
        return merge_ratings(self.db, entities, merging)

    def _holds_out_pairs(self, raw: RawRatings) -> bool:
        """Whether some pairs become test ratings, and not whole groups."""
        return not (raw.has_tests or self.grouped_by) and self.settings.fraction > 0

    def split(self, raw: RawRatings, repeated: Repeated) -> str:
        """Return SQL that is true for test ratings."""
        self.report("splitting")
        if raw.has_tests:
            return "test"
        if self.grouped_by:
            return arrange.held_out_groups(self.db, self.settings.fraction)
        return arrange.held_out(
            self.db,
            self.settings.fraction,
            temporal=self.settings.temporal,
            replicated=repeated.kept > 0,
        )

    def sort(
        self, raw: RawRatings, entities: Entities, test_condition: str, repeated: Repeated
    ) -> SortedRatings:
        """Sort the ratings by row and column, from ``cells`` to ``sorted``."""
        self.report("sorting")
        return arrange.sort_ratings(
            self.db,
            test_condition,
            n_rows=entities.n_rows,
            timestamps=raw.in_order,
            temporal=self.settings.temporal,
            replicated=repeated.kept > 0,
            measures=repeated.measures,
            grouped=bool(self.grouped_by),
        )

    def _matrix_names(self, table: RatingsTable, entities: Entities) -> MatrixNames:
        """Return the names of the matrices that were read."""
        by_side = {}
        for side, entity in entities.sides.items():
            names = arrange.matrix_names(self.db, entity)
            if len(names):
                by_side[side] = names
        return MatrixNames(table.heading, by_side)

    def _directions(self, entities: Entities) -> Directions | None:
        """Return the directions of a table with a context."""
        if not self.has_context:
            return None
        (user,) = entities.labels["user"]
        item, context = entities.labels["item"]
        return Directions((user, item, context), is_open=True)

    def write(
        self,
        raw: RawRatings,
        entities: Entities,
        encoded: EncodedFeatures,
        ordered: SortedRatings,
        *,
        repeated: Repeated,
        item_levels: bool,
        said: SaidLevels | None,
    ) -> dict[str, Any]:
        """Write the ratings file; return its attributes."""
        self.report(f"writing {self.out.name}")
        sides = entities.sides
        parts = arrange.all_name_parts(self.db, entities, self._directions(entities))
        said_levels = None
        if said is not None:
            said_levels = said.of_items(self.db, entities.item)
        names = {}
        if parts is None:
            names = {side: arrange.names(self.db, entity) for side, entity in sides.items()}
        return write_slabs(
            self.out,
            ordered.sizes(entities),
            names,
            arrange.slabs(self.db, ordered.indptr, replicated=repeated.kept > 0),
            parts=parts,
            features={
                side: encoded.features[entity]
                for side, entity in sides.items()
                if entity in encoded.features
            },
            origin=Origin(
                seed=self.settings.seed,
                transposed=entities.transposed,
                source=", ".join(table.file.path.name for table in raw.tables),
                replicates=repeated.kept,
                item_levels=item_levels or said is not None,
                said_levels=said_levels,
                columns=raw.tables[0].named_columns,
                reading=raw.tables[0].reading,
                matrix=self._matrix_names(raw.tables[0], entities),
                grouped_by=self.grouped_by,
            ),
            force=self.settings.force,
        )


def _labels(table: RatingsTable) -> dict[str, tuple[str, ...]]:
    """Return the columns of the names of users and items, one a part."""
    labels = {}
    for entity in NAMED_ROLES:
        names = table.parts(entity) or (entity,)
        has_columns = not table.file.is_matrix
        if len(names) == 1 and entity in table.columns and has_columns:
            names = (table.file.names[table.columns[entity]],)
        labels[entity] = tuple(name or f"{entity} {number}" for number, name in enumerate(names, 1))
    return labels


def _describe(tables: list[RatingsTable], timed: bool) -> tuple[str, dict[str, str]]:
    """Describe the columns of the first table, and of those that have others, by path."""
    first, *more = tables
    columns = first.describe(timed)
    described = {str(table.file.path): table.describe(timed) for table in more}
    return columns, {path: text for path, text in described.items() if text != columns}
