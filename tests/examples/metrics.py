"""Gives the metrics in FOLDER to those that read metrics: metrics.py FOLDER PROMETHEUS.

metrics.prom goes to promtool, metrics.openmetrics to the parser of OpenMetrics and to a Prometheus that scrapes it;
both programs are in the folder PROMETHEUS.
"""

import http.server
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families

# The names are those of node_exporter's collector, but for the last one.
WANTED = {
    ("node_infiniband_state_id", "mlx5_0"): 4,
    ("node_infiniband_physical_state_id", "mlx5_0"): 5,
    ("node_infiniband_rate_bytes_per_second", "mlx5_0"): 50e9,
    ("node_infiniband_port_data_transmitted_bytes_total", "mlx5_0"): 4000,
    ("node_infiniband_link_downed_total", "mlx5_0"): 3,
    ("node_infiniband_symbol_error_total", "mlx5_0"): float(2**64 - 1),
    ("node_infiniband_rx_write_requests_total", "mlx5_0"): 7,
    ("node_infiniband_info", "mlx5_0"): 1,
    ("rdma_init_driver_value", "new_0"): 8,
}

# In seconds: for a Prometheus that starts and scrapes.
LIMIT = 600


def parsed(text):
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, sample.labels["device"]): float(sample.value) for sample in samples}


def linted(promtool, text):
    checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True)
    assert checked.returncode == 0 and not checked.stderr, (checked.returncode, checked.stderr)


def served(text):
    """Returns the port of a server of this text."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def scraped(prometheus, text, folder):
    """Returns what a Prometheus has after it has scraped this text."""
    job = {"job_name": "hcas", "static_configs": [{"targets": [f"127.0.0.1:{served(text)}"]}]}
    # JSON is YAML as well.
    config = folder / "prometheus.yml"
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    port = free_port()
    command = [prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    log = folder / "log"
    with open(log, "wb") as sink:
        server = subprocess.Popen(command + [f"--web.listen-address=127.0.0.1:{port}"], stdout=sink, stderr=sink)
    query = urllib.parse.urlencode({"query": '{job="hcas",device!=""}'})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and server.poll() is None:
            try:
                with opener.open(f"http://127.0.0.1:{port}/api/v1/query?{query}") as answer:
                    found = json.load(answer)["data"]["result"]
            except (urllib.error.URLError, ConnectionError):
                found = []
            if found:
                return {(one["metric"]["__name__"], one["metric"]["device"]): float(one["value"][1]) for one in found}
            # Prometheus does not announce that it has scraped.
            time.sleep(0.2)
        raise AssertionError(log.read_text())
    finally:
        server.kill()
        server.wait()


folder = pathlib.Path(sys.argv[1])
programs = pathlib.Path(sys.argv[2])
linted(programs / "promtool", (folder / "metrics.prom").read_text())
openmetrics = (folder / "metrics.openmetrics").read_text()
assert parsed(openmetrics) == WANTED, parsed(openmetrics)
got = scraped(programs / "prometheus", openmetrics, folder)
assert got == WANTED, got
