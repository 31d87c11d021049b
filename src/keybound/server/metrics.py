"""What the service counts, as Prometheus reads it. Holds no address, name or result."""

from collections import Counter
from collections.abc import Mapping

Gauge = Mapping[str, float]


class Metrics:
    """Counters of requests, their time and their bytes."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # method, route, status
        self.seconds: dict[str, float] = {}  # by route
        self.bytes = 0  # of recordings that came in whole

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests[method, route, status] += 1
        self.seconds[route] = self.seconds.get(route, 0.0) + seconds

    def text(self, gauges: Gauge) -> str:
        """Return all counters, and gauges by their names, in Prometheus' text format."""
        lines = ["# TYPE keybound_requests_total counter"]
        for (method, route, status), count in sorted(self.requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            lines.append(f"keybound_requests_total{{{labels}}} {count}")
        lines.append("# TYPE keybound_request_seconds_total counter")
        for route, spent in sorted(self.seconds.items()):
            lines.append(f'keybound_request_seconds_total{{route="{route}"}} {spent:.6f}')
        lines += ["# TYPE keybound_recording_bytes_total counter"]
        lines += [f"keybound_recording_bytes_total {self.bytes}"]
        for name, value in gauges.items():
            lines += [f"# TYPE keybound_{name} gauge", f"keybound_{name} {value:g}"]
        return "\n".join(lines) + "\n"
