//! One end of a rail between two nodes.

use std::time::{Duration, Instant};

use super::completions::{Completion, Completions};
use super::device::{OpenDevice, Port};
use super::failure::Failure;
use super::link::{Link, MESSAGE, VERIFIED};
use super::memory::{Domain, Region};
use super::probe::{ROOM, Steps, begin};
use super::queue_pair::{PeerPath, QueuePair};
use super::step::Step;
use super::talk::{End, ProbeControl};
use super::work::{Part, RemoteAddress, Request, receive, send};
use crate::verbs::port_test::{DeviceProbe, PortTest};

/// Which of the two ends sends first.
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

/// Connects a port to another node's port, and moves data in one direction, then in the other.
pub(crate) fn port(wanted: &PortTest, side: Side, talk: &mut dyn ProbeControl) -> DeviceProbe {
    connected(wanted, talk, |steps, link, areas, until, probe| steps.prove(link, areas, side, until, probe))
}

/// Connects a port to another node's port, and moves data in both directions at once, for at most this
/// time. It does not verify the data.
pub(crate) fn together(wanted: &PortTest, time: Duration, talk: &mut dyn ProbeControl) -> DeviceProbe {
    // The other half is for the last message, and for a slow device.
    let time = time.min(wanted.each / 2);
    connected(wanted, talk, |steps, link, areas, until, probe| steps.load(link, areas, time, until, probe))
}

/// Connects a port, then calls `work` with the connection and the time by which the work must end.
fn connected(
    wanted: &PortTest,
    talk: &mut dyn ProbeControl,
    work: impl FnOnce(&mut Steps, &Link, &Areas, Instant, &mut DeviceProbe) -> Option<()>,
) -> DeviceProbe {
    begin(wanted, talk, |steps, context, port, domain, region, probe| {
        let done = rail(steps, context, port, wanted, domain, region, probe, work);
        // The test may have failed because the port went down during it.
        if done.is_none()
            && let Ok(port) = context.port(wanted.port)
        {
            probe.state = Some(port.state);
        }
    })
}

#[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
fn rail(
    steps: &mut Steps,
    context: &OpenDevice,
    port: Port,
    wanted: &PortTest,
    domain: &Domain,
    region: &Region,
    probe: &mut DeviceProbe,
    work: impl FnOnce(&mut Steps, &Link, &Areas, Instant, &mut DeviceProbe) -> Option<()>,
) -> Option<()> {
    let completions = steps.step(Step::CreateQueue, || Completions::new(context, ROOM))?;
    let pair = steps.step(Step::CreatePair, || QueuePair::new(domain, &completions))?;
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
    let route = PeerPath {
        port_number: wanted.port,
        path_mtu: port.path_mtu.with(far.mtu),
        lid: far.lid,
        gid: gid.zip(far.gid).map(|((slot, _), gid)| (slot, gid)),
        marks: wanted.marks,
    };
    steps.step(Step::ToInit, || pair.initialize(wanted.port, wanted.marks))?;
    steps.step(Step::ToReceive, || pair.receive_from(far.number, &route))?;
    steps.step(Step::ToSend, || pair.allow_sending())?;
    let areas = Areas::new(region, &far);
    steps.step(Step::PostReceive, || areas.expect(&pair))?;
    if !steps.talk.meet() {
        return None;
    }
    let link = Link { completions: &completions, pair: &pair };
    // The work gives up before the parent kills the process, because the parent could report less about
    // the failure.
    let until = Instant::now() + wanted.each / 4 * 3;
    work(steps, &link, &areas, until, probe)?;
    steps.talk.step(Step::Release);
    Some(())
}

impl Steps<'_> {
    fn prove(
        &mut self,
        link: &Link,
        areas: &Areas,
        side: Side,
        until: Instant,
        probe: &mut DeviceProbe,
    ) -> Option<()> {
        if side == Side::Second {
            self.hear(link, areas, side.other(), until)?;
        }
        self.speak(link, areas, side, probe)?;
        if side == Side::First {
            self.hear(link, areas, side.other(), until)?;
        }
        probe.verified = true;
        Some(())
    }

    fn load(
        &mut self,
        link: &Link,
        areas: &Areas,
        time: Duration,
        until: Instant,
        probe: &mut DeviceProbe,
    ) -> Option<()> {
        let bulk = areas.own(OUT, MESSAGE);
        let (mbps, mut received) =
            self.step(Step::Bandwidth, || link.load(bulk, areas.far(SCRATCH), time))?;
        probe.bandwidth_mbps = Some(mbps);
        // Neither end may disconnect before the other one has finished.
        self.step(Step::Send, || send(link.pair, areas.own(OUT, VERIFIED), Request::Send))?;
        self.step(Step::Wait, || {
            let mut is_sent = false;
            while !is_sent || received == 0 {
                match link.completions.next(until)? {
                    Completion::Sent => is_sent = true,
                    Completion::Received => received += 1,
                }
            }
            Ok(())
        })
    }

    fn speak(&mut self, link: &Link, areas: &Areas, side: Side, probe: &mut DeviceProbe) -> Option<()> {
        let (message, written) = side.salts();
        let from = areas.own(OUT, VERIFIED);
        let small = Part { length: from.length.min(8), ..from };
        self.step(Step::SmallWrite, || {
            link.send(small, Request::Write { to: areas.far(SCRATCH), told: false })
        })?;
        // If a message is lost from here on, its size is the reason.
        self.step(Step::Send, || {
            let sent = from.fill(message).and_then(|()| link.send(from, Request::Send));
            sent.map_err(|failure| Failure::LongMessage(Box::new(failure)))
        })?;
        self.step(Step::Write, || {
            from.fill(written)?;
            link.send(from, Request::Write { to: areas.far(WRITTEN), told: true })
        })?;
        probe.latency_ns = Some(self.step(Step::Latency, || link.latency(from, areas.far(SCRATCH)))?);
        let bulk = areas.own(OUT, MESSAGE);
        probe.bandwidth_mbps = Some(self.step(Step::Bandwidth, || link.bandwidth(bulk, areas.far(SCRATCH)))?);
        self.step(Step::Send, || link.send(areas.own(OUT, VERIFIED), Request::Send))
    }

    /// Waits for everything that the other end sends, up to its last message.
    fn hear(&mut self, link: &Link, areas: &Areas, from: Side, until: Instant) -> Option<()> {
        let (message, written) = from.salts();
        self.step(Step::Wait, || link.completions.several(EXPECTED.len(), until))?;
        self.step(Step::Verify, || {
            areas.own(MESSAGE_IN, VERIFIED).verify(message)?;
            areas.own(WRITTEN, VERIFIED).verify(written)
        })
    }
}

/// The quarters of a region: the data to send; the message that arrives; the data that the other end
/// writes and then notifies this end about; and the data that it writes only to measure.
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
