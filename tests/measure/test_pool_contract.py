"""The three pools keep one contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_doubles import DEVICE, QuickLocal, seconds_of
from cluster_processes import Cluster
from pool_contract import PoolContract

from autosched.target import Target
from measure.cluster.pool import ClusterPool
from measure.local.pool import LocalPool
from measure.replay import ReplayPool, modelled


class TestLocalPool(PoolContract):
    @pytest.fixture(scope="class")
    @classmethod
    def pool(cls) -> Iterator[LocalPool]:
        with QuickLocal(Target("llvm -num-cores=1"), "cpu") as made:
            yield made
        made.close()


class TestReplayPool(PoolContract):
    @pytest.fixture(scope="class")
    @classmethod
    def pool(cls) -> Iterator[ReplayPool]:
        made = ReplayPool(DEVICE, modelled(seconds_of))
        yield made
        made.close()
        made.close()


class TestClusterPool(PoolContract):
    """Over two slots of real processes that measure with real local pools."""

    @pytest.fixture(scope="class")
    @classmethod
    def pool(cls) -> Iterator[ClusterPool]:
        with Cluster() as cluster:
            cluster.work("real", "local_engine", slots=2)
            with cluster.pool("real") as made:
                yield made
            made.close()
