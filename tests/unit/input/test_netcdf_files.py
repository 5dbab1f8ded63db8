"""Variables of two dimensions of netCDF files, and what is missing in them."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
from ingest_cases import everything
from science_cases import read, refused
from support import typed

from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import read_ratings
from dsgmcmc.ratings.reading import Reading

xarray = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")

VALUES = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, 6.0]])
USUAL = {(u, i): VALUES[k, j] for k, u in enumerate("ab") for j, i in enumerate((10, 20, 30))}
RATINGS = {pair: value for pair, value in USUAL.items() if not np.isnan(value)}


def dataset(dims: tuple[str, str] = ("user", "item"), **more: object) -> object:
    """A dataset with ratings of two users and three items."""
    coords = {dims[0]: ["a", "b"], dims[1]: [10, 20, 30]}
    return xarray.Dataset({"rating": (dims, VALUES), **more}, coords)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_a_variable_is_read_by_the_names_of_its_dimensions(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "x.nc"
    dataset().to_netcdf(path, engine=engine)
    typed("prepare", path, tmp_path / "out.h5").expect(0)
    assert everything(tmp_path / "out.h5") == RATINGS
    dataset(("item", "user")).to_netcdf(path, engine=engine)
    assert read(path) == {(i, u): value for (u, i), value in RATINGS.items()}


def test_dimensions_that_are_not_told_apart_are_refused(tmp_path: Path) -> None:
    """R writes user x item as (item, user): only names tell."""
    path = tmp_path / "x.nc"
    dataset(("station", "day")).to_netcdf(path)
    assert "station and day; which are the users" in refused(path)
    assert read(path, columns="user=station") == RATINGS
    assert read(path, columns="item=day") == RATINGS
    turned = {(i, u): value for (u, i), value in RATINGS.items()}
    assert read(path, columns="user=day,item=station") == turned
    for wrong in ("user=place", "user=station,item=station", "rating=x"):
        assert "station and day" in refused(path, "--columns", wrong) or "one dimension" in refused(
            path, "--columns", wrong
        )


def test_a_variable_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    dataset(other=(("user", "item"), VALUES * 2), name=("user", ["x", "y"])).to_netcdf(path)
    assert "'rating' and 'other': which of them" in refused(path)
    assert read(path, variable="other") == {pair: 2 * value for pair, value in RATINGS.items()}
    dataset().rating.expand_dims("time").to_netcdf(path)
    assert "no variable of two dimensions" in refused(path)


def test_times_are_names(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[ns]")
    dataset().assign_coords(item=days).to_netcdf(path)
    assert {item for _, item in read(path)} == {"2020-01-01", "2020-01-02", "2020-01-03"}


def stored(path: Path, values: np.ndarray, **attributes: object) -> list[float]:
    """Values that are read of a variable, without those that are missing."""
    scipy_types = values.dtype.str[1:] in ("i1", "i2", "i4", "f4", "f8")
    table = np.array([values, np.array([1, 2, 3], values.dtype)])
    variable = xarray.Variable(("user", "item"), table, attributes, {"_FillValue": None})
    data = xarray.Dataset({"rating": variable})
    data.to_netcdf(path, engine="scipy" if scipy_types and path.stem == "old" else "h5netcdf")
    return [value for (user, _), value in sorted(read(path).items()) if user == 0]


@pytest.mark.parametrize(
    ("kind", "fill"),
    [
        ("f8", 9.969209968386869e36),
        ("f4", 9.969209968386869e36),
        ("i4", -2147483647),
        ("i4", -2147483648),  # R's NA
        ("i2", -32767),
    ],
)
def test_default_fill_values_are_missing(tmp_path: Path, kind: str, fill: float) -> None:
    """Without _FillValue they are values to xarray, missing to netCDF4 and ncdump."""
    values = np.array([1, fill, 3], kind)
    assert stored(tmp_path / "x.nc", values) == [1, 3]


def test_bytes_of_the_default_fill_value_are_refused(tmp_path: Path) -> None:
    values = np.array([1, -127, 3], "i1")
    with pytest.raises(InputError, match="has bytes of -127"):
        stored(tmp_path / "x.nc", values)
    assert stored(tmp_path / "x.nc", values, _FillValue=np.int8(-127)) == [1, 3]
    assert stored(tmp_path / "x.nc", values, _FillValue=np.int8(-1)) == [1, -127, 3]


def test_codes_are_rounded_to_the_type_of_the_variable(tmp_path: Path) -> None:
    """-99.9 of type double matches no float of xarray, netCDF4 and RNetCDF."""
    values = np.array([1, -99.9, 3], "f4")
    assert stored(tmp_path / "x.nc", values, missing_value=-99.9) == [1, 3]


def test_both_codes_count_and_may_be_several_or_text(tmp_path: Path) -> None:
    values = np.array([1.0, -9, 99])
    assert stored(tmp_path / "x.nc", values, _FillValue=99.0, missing_value=-9.0) == [1]
    assert stored(tmp_path / "x.nc", values, missing_value=np.array([-9.0, 99.0])) == [1]
    assert stored(tmp_path / "x.nc", values, missing_value="-9") == [1, 99]


def test_values_outside_of_the_valid_range_are_missing(tmp_path: Path) -> None:
    values = np.array([1.0, 7, 3])
    assert stored(tmp_path / "x.nc", values, valid_min=0.0, valid_max=5.0) == [1, 3]
    assert stored(tmp_path / "x.nc", values, valid_range=np.array([2.0, 9.0])) == [7, 3]


def test_packed_values_are_unpacked(tmp_path: Path) -> None:
    values = np.array([1, 2, -32767], "i2")
    found = stored(tmp_path / "x.nc", values, scale_factor=0.5, add_offset=10.0)
    assert found == [10.5, 11]
    values = np.array([1, -2, 3], "i1")
    assert stored(tmp_path / "x.nc", values, _Unsigned="true") == [1, 254, 3]


def test_rows_that_nobody_wrote_along_an_unlimited_dimension(tmp_path: Path) -> None:
    """(2, 2) by h5py, (3, 2) by netCDF4 and h5netcdf."""
    path = tmp_path / "x.nc"
    values = xarray.Variable(("user", "item"), np.arange(6.0).reshape(3, 2))
    xarray.Dataset({"a": values, "b": values}).to_netcdf(
        path, engine="h5netcdf", unlimited_dims=["user"]
    )
    with h5py.File(path, "r+") as file:
        file["b"].resize((2, 2))
    assert len(read(path, variable="a")) == 6
    assert read(path, variable="b") == {(0, 0): 0, (0, 1): 1, (1, 0): 2, (1, 1): 3}


def test_other_hdf5_files_name_who_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "x.h5x"
    for name, reader in (
        ("mod", "mudata"),
        ("row_attrs", "loompy"),
        ("observation", "biom-format"),
    ):
        with h5py.File(path, "w") as file:
            file.create_group(name)
        assert reader in refused(path)
    with h5py.File(path, "w") as file:
        file["matrix/barcodes"] = [1]
    assert "scanpy.read_10x_h5" in refused(path)


def test_a_variable_of_a_dataset_in_memory_is_chosen() -> None:
    data = dataset(other=(("user", "item"), VALUES * 2))
    with pytest.raises(InputError, match="'rating' and 'other'"):
        read_ratings(data)
    found = read_ratings(data, None, Reading(variable="rating"))
    assert found["rating"].tolist() == [1, 3, 4, 5, 6]
    assert read_ratings(dataset())["user"].tolist() == list("aabbb")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    dataset().to_netcdf(path, engine="scipy")
    path.write_bytes(path.read_bytes()[:60])
    assert "cannot be read" in refused(path)
    with scipy.io.netcdf_file(path, "w") as file:
        file.createDimension("user", 2)
    assert "no variable of two dimensions (it has none)" in refused(path)


def test_zeros_that_xarray_made_missing_are_refused(tmp_path: Path) -> None:
    """0 is the fill value of a file of whole numbers, as of a zarr store: its zeros are NaN."""
    counts = xarray.DataArray([[0, 2, 3], [1, 0, 2]], dims=("user", "item"))
    counts.encoding["_FillValue"] = 0
    counts.to_dataset(name="rating").to_netcdf(tmp_path / "counts.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "counts.nc") as opened:
        for X in (opened, opened["rating"]):
            with pytest.raises(InputError, match="open it with mask_and_scale=False"):
                read_ratings(X)
        assert len(read_ratings(opened["rating"].drop_encoding())["user"]) == 4
    with xarray.open_dataset(tmp_path / "counts.nc", mask_and_scale=False) as opened:
        assert len(read_ratings(opened["rating"])["user"]) == 6
