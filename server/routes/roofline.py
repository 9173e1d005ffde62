"""What was reached, and what the devices could do at best."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from records import Store
from records.operations import roofline
from records.operations.roofline import Reached, Traffic
from server.routes.common import ModelRoute, answers
from server.routes.records import Text
from server.schemas import DeviceLimits, Limits, Roofline, RooflinePoint
from server.state import ServiceOf

router = APIRouter(prefix="/v1/roofline", tags=["roofline"], route_class=ModelRoute)

Device = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.:-]{1,64}$", examples=["4f1c2ab09d3e"])]


@router.get("", operation_id="get_roofline", responses=answers())
def get_roofline(service: ServiceOf, device: Text = None) -> Roofline:
    """The limits of the devices, or of one, and the best of each workload that the newest 2,000
    jobs reached there: its speed, its arithmetic intensity, its share of the device's bound."""
    store = service.store
    limits = [one for one in roofline.all_limits(store) if device in (None, one.device)]
    reached = roofline.reached(store, device, roofline.NEWEST)
    moved = roofline.traffic_of(store, {one.workload_key for one in reached})
    by_device = {one.device: one for one in limits}
    return Roofline(
        devices=[DeviceLimits.model_validate(one) for one in limits],
        points=[
            _point(one, moved.get(one.workload_key), by_device.get(one.device))
            for one in reached
            if one.flop
        ],
    )


def _point(
    reached: Reached, traffic: Traffic | None, limits: roofline.DeviceLimits | None
) -> RooflinePoint:
    bound = roofline.bound(reached.flop, traffic, limits)
    return RooflinePoint(
        workload_key=reached.workload_key,
        workload_name=reached.name,
        workload_args=reached.args,
        device=reached.device,
        record_id=reached.record_id,
        job_id=reached.job_id,
        seconds=reached.seconds,
        gflops=reached.flop / reached.seconds / 1e9,
        intensity=reached.flop / traffic.bytes if traffic and traffic.bytes else None,
        in_cache=traffic.bytes <= limits.cache_bytes if traffic and limits else None,
        share=bound.seconds / reached.seconds if bound else None,
        bound_by=bound.by if bound else None,  # type: ignore[arg-type]
    )


@router.put("/{device}", operation_id="put_limits", responses=answers())
async def put_limits(service: ServiceOf, device: Device, request: Limits) -> DeviceLimits:
    """Tell what a device can do, as `autosched doctor --json` measured it there, in place of what
    is known; for admins. A server measures its own processor with the first job of the local pool;
    devices of a cluster are told of here."""

    def put(store: Store) -> DeviceLimits:
        roofline.put_limits(store, roofline.DeviceLimits(device=device, **request.model_dump()))
        return DeviceLimits.model_validate(roofline.limits_of(store, device))

    return await service.writing.do(lambda: put(service.store))
