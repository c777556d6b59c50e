//! One end of a rail between two nodes.

use std::time::Instant;

use super::completions::Completions;
use super::device::{Context, Port};
use super::failure::Failure;
use super::link::{Link, MESSAGE, VERIFIED};
use super::memory::{Domain, Region};
use super::probe::{ROOM, Steps, begin};
use super::queue_pair::{QueuePair, Route};
use super::talk::{End, Talk};
use super::work::{Part, RemoteAddress, Request, receive};
use crate::verbs::port_test::{DeviceProbe, PortTest};

/// The name of the step that fails if the other end has failed.
pub const WAITING: &str = "wait for the other end";

/// Which of the two ends speaks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    First,
    Second,
}

impl Side {
    /// Returns the salts of the data that this side sends, and of the data that it writes.
    fn salts(self) -> (u8, u8) {
        match self {
            Side::First => (0x5a, 0xa5),
            Side::Second => (0x3c, 0xc3),
        }
    }

    pub fn other(self) -> Side {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

/// Connects a port to one of another node, and moves data in both directions.
pub fn port(wanted: &PortTest, side: Side, talk: &mut dyn Talk) -> DeviceProbe {
    begin(wanted, talk, |steps, context, port, domain, region, probe| {
        let done = rail(steps, context, port, wanted, side, domain, region, probe);
        // The test may have failed because the port went down during it.
        if done.is_none()
            && let Ok(port) = context.port(wanted.port)
        {
            probe.state = Some(port.state.to_owned());
        }
    })
}

#[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
fn rail(
    steps: &mut Steps,
    context: &Context,
    port: Port,
    wanted: &PortTest,
    side: Side,
    domain: &Domain,
    region: &Region,
    probe: &mut DeviceProbe,
) -> Option<()> {
    let completions = steps.step("ibv_create_cq", || Completions::new(context, ROOM))?;
    let pair = steps.step("ibv_create_qp", || QueuePair::new(domain, &completions))?;
    let gid = steps.address(context, port, wanted, probe)?;
    let whole = Part { region, offset: 0, length: 0 }.place();
    let far = steps.talk.exchange(End {
        number: pair.number(),
        lid: port.lid,
        gid: gid.map(|(_, gid)| gid),
        mtu: port.active_mtu,
        address: whole.address,
        key: whole.key,
        size: region.size() as u64,
    })?;
    let route = Route {
        port_number: wanted.port,
        path_mtu: port.path_mtu.with(far.mtu),
        lid: far.lid,
        gid: gid.zip(far.gid).map(|((slot, _), gid)| (slot, gid)),
    };
    steps.step("ibv_modify_qp INIT", || pair.initialize(wanted.port))?;
    steps.step("ibv_modify_qp RTR", || pair.receive_from(far.number, &route))?;
    steps.step("ibv_modify_qp RTS", || pair.allow_sending())?;
    let areas = Areas::new(region, &far);
    steps.step("ibv_post_recv", || areas.expect(&pair))?;
    if !steps.talk.meet() {
        return None;
    }
    let link = Link { completions: &completions, pair: &pair };
    // This gives up before the parent kills the process, because the parent could say less
    // about it.
    let until = Instant::now() + wanted.each / 4 * 3;
    if side == Side::Second {
        steps.hear(&link, &areas, side.other(), until)?;
    }
    steps.speak(&link, &areas, side, probe)?;
    if side == Side::First {
        steps.hear(&link, &areas, side.other(), until)?;
    }
    probe.verified = true;
    steps.talk.step("release");
    Some(())
}

impl Steps<'_> {
    fn speak(&mut self, link: &Link, areas: &Areas, side: Side, probe: &mut DeviceProbe) -> Option<()> {
        let (message, written) = side.salts();
        let from = areas.own(OUT, VERIFIED);
        self.step("send", || from.fill(message).and_then(|()| link.send(from, Request::Send)))?;
        self.step("RDMA write", || {
            from.fill(written)?;
            link.send(from, Request::Write { to: areas.far(WRITTEN), told: true })
        })?;
        probe.latency_ns = Some(self.step("latency", || link.latency(from, areas.far(SCRATCH)))?);
        let bulk = areas.own(OUT, MESSAGE);
        probe.bandwidth_mbps = Some(self.step("bandwidth", || link.bandwidth(bulk, areas.far(SCRATCH)))?);
        self.step("send", || link.send(areas.own(OUT, VERIFIED), Request::Send))
    }

    /// Waits for everything that the other end sends, up to its last message.
    fn hear(&mut self, link: &Link, areas: &Areas, from: Side, until: Instant) -> Option<()> {
        let (message, written) = from.salts();
        self.step(WAITING, || link.completions.several(EXPECTED.len(), until))?;
        self.step("verify", || {
            areas.own(MESSAGE_IN, VERIFIED).verify(message)?;
            areas.own(WRITTEN, VERIFIED).verify(written)
        })
    }
}

/// The quarters of a region: the data to send; the message that arrives; the place to which the
/// other end writes data, about which it notifies this end; and the place to which it writes only
/// to measure.
const OUT: usize = 0;
const MESSAGE_IN: usize = 1;
const WRITTEN: usize = 2;
const SCRATCH: usize = 3;

/// The quarters into which this end receives, in this order: the message, the notice about the
/// written data, and the last message.
const EXPECTED: [usize; 3] = [MESSAGE_IN, WRITTEN, SCRATCH];

struct Areas<'a> {
    region: &'a Region<'a>,
    /// The size of each quarter in bytes, the same at both ends.
    quarter: usize,
    far: RemoteAddress,
}

impl<'a> Areas<'a> {
    fn new(region: &'a Region<'a>, far: &End) -> Areas<'a> {
        let size = usize::try_from(far.size).unwrap_or(usize::MAX).min(region.size());
        Areas { region, quarter: size / 4, far: RemoteAddress { address: far.address, key: far.key } }
    }

    fn own(&self, area: usize, length: usize) -> Part<'a> {
        let length = u32::try_from(length.min(self.quarter)).unwrap_or(u32::MAX);
        Part { region: self.region, offset: area * self.quarter, length }
    }

    fn far(&self, area: usize) -> RemoteAddress {
        self.far.beyond(area * self.quarter)
    }

    fn expect(&self, pair: &QueuePair) -> Result<(), Failure> {
        EXPECTED.into_iter().try_for_each(|area| {
            let into = self.own(area, VERIFIED);
            into.clear()?;
            receive(pair, into)
        })
    }
}
