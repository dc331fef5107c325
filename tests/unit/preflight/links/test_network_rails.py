from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from preflight.check_context import Context
from preflight.checks import nic_rails
from preflight.checks.nic_rails import RailPeer
from preflight.host import rdma_loop
from preflight.host.network_rails import (
    NetworkRail,
    WantedRail,
    describe_error_growth,
    judge_rail,
    parse_wanted_rails,
    read_network_rails,
    select_rails,
)
from preflight.host.rail_traffic import (
    BLOCK_BYTES,
    TrafficResult,
    exchange_over_rail,
    run_echo_server,
)
from preflight.host.rdma_loop import parse_average_gigabits
from preflight.results import Outcome, Result
from vocabulary.hardware.machine_files import Machine

ROOT = Path(__file__).parents[4]
NETWORKS = os.geteuid() == 0 and shutil.which("ip") is not None


def put(root: Path, path: str, text: object) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def rdma(root: Path, number: int, rate: int = 400, state: str = "4: ACTIVE", width: int = 16) -> None:
    where = f"/sys/class/infiniband/mlx5_{number}"
    for name, text in {"state": state, "phys_state": "5: LinkUp", "link_layer": "InfiniBand"}.items():
        put(root, f"{where}/ports/1/{name}", text)
    put(root, f"{where}/ports/1/rate", f"{rate} Gb/sec (4X NDR)")
    put(root, f"{where}/ports/1/counters/link_downed", 1)
    put(root, f"{where}/board_id", "MT_0000000838")
    put(root, f"{where}/device/current_link_width", width)
    put(root, f"{where}/device/max_link_width", 16)
    put(root, f"{where}/device/net/ib{number}/mtu", 2044)


def ethernet(root: Path, name: str, **files: object) -> None:
    usual = {"flags": "0x1003", "operstate": "up", "carrier": 1, "speed": 25000, "type": 1}
    for file, text in (usual | files).items():
        put(root, f"/sys/class/net/{name}/{file}", text)
    put(root, f"/sys/class/net/{name}/device/vendor", "0x15b3")


def ran(root: Path | None = None, fault: str = "", **environ: str) -> list[Result]:
    context = Context(device=None, devices=(), level="standard", seconds=1.0, fault=fault, note=lambda _: None)
    return list(nic_rails.check_nic_rails(context, Machine(root) if root else None, environ))


@pytest.fixture(autouse=True)
def _without_perftest(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine may have it; its own tests bring a stand-in."""
    monkeypatch.setattr(rdma_loop, "RDMA_TOOL", "no_perftest_here")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    for number in range(4):
        rdma(tmp_path, number)
        ethernet(tmp_path, f"ib{number}", type=32)
    ethernet(tmp_path, "eth0")
    put(tmp_path, "/sys/class/net/lo/operstate", "unknown")
    return tmp_path


def test_rdma_ports_are_the_rails_where_there_are_any(node: Path) -> None:
    rails = read_network_rails(Machine(node))
    assert [rail.name for rail in rails] == ["mlx5_0/1", "mlx5_1/1", "mlx5_2/1", "mlx5_3/1", "eth0"]
    first = rails[0]
    assert (first.up, first.rate, first.width, first.interface, first.kind) == (True, 400.0, 16, "ib0", "InfiniBand")
    assert [rail.name for rail in select_rails(rails, ())] == [f"mlx5_{n}/1" for n in range(4)]
    assert [rail.name for rail in select_rails(rails, (WantedRail("eth0"), WantedRail("ib2")))] == ["eth0", "mlx5_2/1"]


def test_a_rail_slower_or_narrower_than_its_siblings_fails_alone(node: Path) -> None:
    rdma(node, 2, rate=200, width=8)
    results = {r.device: r for r in ran(node)}
    assert {name for name, r in results.items() if r.outcome is Outcome.FAIL} == {"mlx5_2/1"}
    assert results["mlx5_2/1"].reason == (
        "runs at 200 Gb/s, ports of the same kind at 400; has 8 PCIe lanes, ports of the same kind 16"
    )
    assert results["mlx5_2/1"].locations[0].nic == "mlx5_2/1"


def test_a_port_that_is_down_fails_only_where_it_is_wanted(node: Path) -> None:
    rdma(node, 3, state="1: DOWN")
    assert {r.outcome for r in ran(node)} == {Outcome.PASS}
    assert "list it as wanted" in next(r for r in ran(node) if r.device == "mlx5_3/1").remarks[0]
    (result,) = ran(node, HEALTHD_PREFLIGHT_RAILS="mlx5_3")
    assert (result.outcome, result.reason) == (Outcome.FAIL, "is down (DOWN, LinkUp)")


def test_what_is_wanted_and_not_there_or_too_slow_fails(node: Path) -> None:
    results = ran(node, HEALTHD_PREFLIGHT_RAILS="mlx5_0:800, mlx5_9")
    assert {(r.device, r.reason) for r in results} == {
        ("mlx5_9", "no such port on this machine"),
        ("mlx5_0/1", "runs at 400 Gb/s, 800 wanted"),
    }


@pytest.mark.parametrize("text", ["mlx5_0:fast", "a b", ":400"])
def test_words_that_are_no_rail_are_the_persons_to_put_right(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="is not a rail"):
        parse_wanted_rails(text)
    (result,) = ran(tmp_path, HEALTHD_PREFLIGHT_RAILS=text)
    assert result.misconfigured
    (result,) = ran(tmp_path, HEALTHD_PREFLIGHT_RAIL_PEERS="eth0=nowhere")
    assert "write INTERFACE=ADDRESS:PORT" in result.reason


def test_without_adapters_there_is_nothing_to_test(tmp_path: Path) -> None:
    put(tmp_path, "/sys/class/net/lo/operstate", "unknown")
    put(tmp_path, "/sys/class/net/docker0/operstate", "up")
    assert [r.outcome for r in ran(tmp_path)] == [Outcome.NOT_APPLICABLE]


def test_an_interface_that_is_switched_off_is_nobodys_rail(tmp_path: Path) -> None:
    ethernet(tmp_path, "eth0")
    ethernet(tmp_path, "eth1", flags="0x1002", operstate="down")
    assert [r.device for r in ran(tmp_path)] == ["eth0"]


def test_two_siblings_set_no_standard() -> None:
    rails = [NetworkRail(name=f"r{n}", kind="", up=True, rate=400, board="b") for n in range(2)]
    slow = NetworkRail(name="slow", kind="", up=True, rate=100, board="b")
    assert judge_rail(slow, [*rails, slow], ()) == ([], [])


def test_errors_count_by_what_the_traffic_added() -> None:
    before = NetworkRail(name="r", kind="", up=True, counters={"link_downed": 7, "symbol_error": 1000})
    after = msgspec.structs.replace(before, counters={"link_downed": 8, "symbol_error": 1050})
    assert describe_error_growth(before, after) == ["link_downed grew by 1 during the test"]


def test_the_average_is_read_from_the_last_row_of_the_tools_table() -> None:
    table = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 65536 742000 0.00 388.71 0.741412\n"
    assert parse_average_gigabits(table) == 388.71
    assert parse_average_gigabits("Couldn't connect to 127.0.0.1:18515") is None


@pytest.mark.parametrize(("fault", "words"), [("down", "is down"), ("slow", "carries"), ("corrupt", "came back wrong")])
def test_each_injected_fault_is_found(fault: str, words: str) -> None:
    (result,) = ran(fault=fault)
    assert result.outcome is Outcome.FAIL
    assert words in result.reason


def test_a_peer_that_changes_a_byte_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def spoil() -> None:
            link, _ = server.accept()
            with link:
                seen = 0
                while data := bytearray(link.recv(BLOCK_BYTES)):
                    if seen <= 77 < seen + len(data):
                        data[77 - seen] ^= 1
                    seen += len(data)
                    link.sendall(data)

        thread = threading.Thread(target=spoil)
        thread.start()
        carried = exchange_over_rail("", server.getsockname()[:2], 0.0)
        thread.join()
    assert (carried.wrong, carried.first, carried.total) == (1, 77, 2 * BLOCK_BYTES)


@contextmanager
def spoiling(host: str, change: Callable[[bytearray], None]) -> Iterator[str]:
    """A peer that sends back each block as `change` leaves it; gives its address."""
    with socket.create_server((host, 0)) as server:

        def answer() -> None:
            try:
                link, _ = server.accept()
            except OSError:  # nobody came
                return
            with link:
                while block := bytearray(link.recv(BLOCK_BYTES, socket.MSG_WAITALL)):
                    change(block)
                    link.sendall(block)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"{host}:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def flip(block: bytearray) -> None:
    block[7] ^= 1


def swap_pages(block: bytearray) -> None:
    block[4096:8192], block[40960:45056] = block[40960:45056], block[4096:8192]


def untouched(_: bytearray) -> None:
    pass


Change = Callable[[bytearray], None]


def sent(*changes: Change) -> Result:
    """The result for the loopback interface as a rail, with a peer on an address of its own for each of `changes`."""
    with ExitStack() as peers:
        words = [peers.enter_context(spoiling(f"127.0.0.{n}", change)) for n, change in enumerate(changes, 1)]
        text = ",".join(f"lo={word}" for word in words)
        (result,) = ran(HEALTHD_PREFLIGHT_RAIL_PEERS=text, HEALTHD_PREFLIGHT_RAILS="lo")
    return result


@pytest.mark.parametrize(
    ("changes", "outcome", "says"),
    [
        ((untouched,), Outcome.PASS, ""),
        ((flip,), Outcome.ERROR, "name a second peer to tell"),
        ((swap_pages,), Outcome.ERROR, "the first is byte 4096"),
        ((flip, untouched), Outcome.ERROR, "bytes came back wrong from 127.0.0.1:"),
        ((flip, swap_pages), Outcome.FAIL, "bytes came back wrong from 127.0.0.2:"),
    ],
)
def test_a_port_is_blamed_only_for_words_that_two_peers_change(
    monkeypatch: pytest.MonkeyPatch, changes: tuple[Change, ...], outcome: Outcome, says: str
) -> None:
    monkeypatch.setattr(nic_rails, "LEAST_GB_S", 0.0)
    result = sent(*changes)
    assert (result.outcome, bool(result.locations)) == (outcome, outcome is Outcome.FAIL), result
    assert says in result.reason
    assert [figure.name for figure in result.figures] == ["rail_rate"] * (len(changes) > 1)


@pytest.mark.parametrize(
    ("rates", "faults", "unsure"), [((0.1, 0.1), 0, 0), ((0.01,), 0, 2), ((0.01, 0.01), 2, 0), ((0.01, 0.1), 0, 2)]
)
def test_a_port_is_blamed_for_being_slow_only_if_it_is_so_with_every_peer(
    rates: tuple[float, ...], faults: int, unsure: int
) -> None:
    carried = tuple(
        (RailPeer("r", (f"10.0.0.{n}", 18600)), TrafficResult(rate, 1 << 20)) for n, rate in enumerate(rates)
    )
    seen = nic_rails._judge_traffic(nic_rails._RailInspection(NetworkRail(name="r", kind="", up=True), carried=carried))
    assert (len(seen.faults), len(seen.unsure)) == (faults, unsure)
    assert [figure.value for figure in seen.figures] == [max(rates)] * (len(rates) > 1)
    same = tuple((RailPeer("r", ("10.0.0.1", port)), each) for port, (_, each) in enumerate(carried))
    assert not nic_rails._judge_traffic(msgspec.structs.replace(seen, faults=(), carried=same)).faults, (
        "one host is one witness"
    )


def test_a_peer_answers_all_who_ask_at_once() -> None:
    with run_echo_server(("127.0.0.1", 0)) as address, socket.create_connection(address):
        assert exchange_over_rail("", address, 0.0).wrong == 0


def test_a_peer_that_hangs_up_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()[:2]

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(OSError, match=r"closed|reset|pipe"):
            exchange_over_rail("", address, 0.0)
        thread.join()


@pytest.fixture
def rail() -> Iterator[tuple[str, str]]:
    """A real link: this end's interface, and the address at which the other end, in a network of its own, answers."""
    own, far, space = f"pf{os.getpid() % 10**6}a", f"pf{os.getpid() % 10**6}b", f"pf{os.getpid()}"
    third = os.getpid() % 250
    commands = [
        f"ip netns add {space}",
        f"ip link add {own} type veth peer name {far}",
        f"ip link set {far} netns {space}",
        f"ip addr add 198.18.{third}.1/30 dev {own}",
        f"ip link set {own} up",
        f"ip -n {space} addr add 198.18.{third}.2/30 dev {far}",
        f"ip -n {space} link set {far} up",
    ]
    try:
        for command in commands:
            if subprocess.run(command.split(), capture_output=True, check=False).returncode:
                pytest.skip(f"no right to make networks here: {command}")
        listen = [sys.executable, "-m", "preflight.host.rail_traffic", f"198.18.{third}.2:18600"]
        with subprocess.Popen(
            ["ip", "netns", "exec", space, *listen], stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as peer:
            assert peer.stdout
            assert "answering" in peer.stdout.readline()
            yield own, f"198.18.{third}.2:18600"
            peer.terminate()
    finally:
        subprocess.run(["ip", "link", "del", own], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


@pytest.mark.skipif(not NETWORKS, reason="needs root and iproute2 to make a network")
def test_words_cross_a_real_link_and_none_when_it_is_down(rail: tuple[str, str]) -> None:
    name, address = rail
    (result,) = ran(HEALTHD_PREFLIGHT_RAILS=name, HEALTHD_PREFLIGHT_RAIL_PEERS=f"{name}={address}")
    assert (result.outcome, result.device) == (Outcome.PASS, name), result
    assert str(result.evidence["peers"]).startswith(f"{address} ")
    sent = int(Path(f"/sys/class/net/{name}/statistics/tx_bytes").read_text())
    assert sent > BLOCK_BYTES, "it went over this interface and no other"
    with pytest.raises(OSError, match=r"unreachable|timed out"):
        exchange_over_rail("lo", (address.partition(":")[0], 18600), 0.0, timeout_s=0.5)
    subprocess.run(["ip", "link", "set", name, "down"], check=True)
    (result,) = ran(HEALTHD_PREFLIGHT_RAILS=name, HEALTHD_PREFLIGHT_RAIL_PEERS=f"{name}={address}")
    assert result.outcome is Outcome.FAIL
    assert "is down" in result.reason


@pytest.mark.skipif(not NETWORKS, reason="needs root and iproute2 to make a network")
def test_no_answer_over_a_link_that_is_up_accuses_nobody(rail: tuple[str, str]) -> None:
    name, address = rail
    with run_echo_server(("127.0.0.1", 0)) as elsewhere:
        (result,) = ran(
            HEALTHD_PREFLIGHT_RAILS=name,
            HEALTHD_PREFLIGHT_RAIL_PEERS=f"{name}={address.rpartition(':')[0]}:{elsewhere[1]}",
        )
    assert result.outcome is Outcome.ERROR
    assert "the fault is at this end, the other end or in between" in result.reason
