//! `rpcrdma touch`: changes times. Also the text forms of times that people type.

use clap::Args;
use rpcrdma_nfs::client::NfsUrl;
use rpcrdma_nfs::wire::{NfsTime, SetAttributes, SetTime, Status};

use super::Tally;
use super::names::{AFTER_HELP, Document, documented};
use crate::arguments::{Common, Connection, pattern};
use crate::connect::Servers;
use crate::exit::Failure;

const TIME_HELP: &str = "\
Without -d, -t and -r, the times become that of the server's clock. Times are UTC, unless TIME ends with an offset. NFS version 3 has \
times from 1970 to 2106.

TIME is 2024-02-29, 2024-02-29T12:34, 2024-02-29 12:34:56.789, any of these with Z or +01:00 behind a time of day, or @SECONDS since \
1970. STAMP is [[CC]YY]MMDDhhmm[.ss], as POSIX has it.

";

/// Mode of a new file, before the umask.
const NEW_FILE: u32 = 0o666;

/// Change times, and make empty files where nothing is. Symbolic links are followed
#[derive(Debug, Args)]
#[command(after_help = format!("{TIME_HELP}{AFTER_HELP}"))]
pub(crate) struct Touch {
    /// Change the time of the last access only, or with -m both
    #[arg(short)]
    access: bool,
    /// Change the time of the last change only, or with -a both
    #[arg(short)]
    modification: bool,
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Set this time
    #[arg(short, long, value_name = "TIME", value_parser = parse, conflicts_with_all = ["stamp", "reference"])]
    date: Option<NfsTime>,
    /// Set this time, given as a stamp
    #[arg(short = 't', value_name = "STAMP", value_parser = parse_stamp, conflicts_with = "reference")]
    stamp: Option<NfsTime>,
    /// Set the times of this file
    #[arg(short, long, value_name = "URL")]
    reference: Option<NfsUrl>,
    /// Files to change or to make; names may have wildcards
    #[arg(required = true, value_name = "URL", value_parser = pattern)]
    urls: Vec<NfsUrl>,
    #[command(flatten)]
    connection: Connection,
}

impl Touch {
    /// Runs the command; `umask` is that of the process.
    pub(crate) async fn run(&self, common: Common, umask: u32) -> Result<(), Failure> {
        documented(common, async |document| self.all(document, umask).await).await
    }

    async fn all(&self, document: &mut Document, umask: u32) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        let (atime, mtime) = self.times(&mut servers).await?;
        let both = self.access == self.modification;
        let times = SetAttributes {
            atime: if both || self.access { atime } else { SetTime::DontChange },
            mtime: if both || self.modification { mtime } else { SetTime::DontChange },
            ..SetAttributes::default()
        };
        for given in &self.urls {
            for url in servers.expand(given).await? {
                let touched = self.touch(&mut servers, &url, times, umask).await;
                if tally.count(touched)? == Some(true) {
                    document.add(&url, None);
                }
            }
        }
        servers.close().await;
        tally.finish()
    }

    /// Returns the times to set, of access and of change.
    async fn times(&self, servers: &mut Servers<'_>) -> Result<(SetTime, SetTime), Failure> {
        if let Some(url) = &self.reference {
            let location = servers.locate(url).await?;
            let found = location.client.stat(&location.path).await;
            let attributes = found.map_err(|error| location.failure(error))?;
            return Ok((SetTime::ClientTime(attributes.atime), SetTime::ClientTime(attributes.mtime)));
        }
        let time = self.date.or(self.stamp).map_or(SetTime::ServerTime, SetTime::ClientTime);
        Ok((time, time))
    }

    /// Sets the times of an object, or makes it. Returns `false` if there is none, and none is to be made.
    async fn touch(
        &self,
        servers: &mut Servers<'_>,
        url: &NfsUrl,
        times: SetAttributes,
        umask: u32,
    ) -> Result<bool, Failure> {
        let location = servers.locate(url).await?;
        let (client, path) = (&location.client, &location.path);
        let fail = |error| location.failure(error);
        let node = match client.lookup(path).await {
            Ok(node) => node,
            Err(error) if error.status() == Some(Status::NoEnt) && self.no_create => return Ok(false),
            Err(error) if error.status() == Some(Status::NoEnt) => {
                let new = SetAttributes { mode: Some(NEW_FILE & !umask), ..SetAttributes::default() };
                match client.create_new(path, new).await {
                    Ok(_) => {}
                    // Another client was faster.
                    Err(error) if error.status() == Some(Status::Exist) => {}
                    Err(error) => return Err(fail(error)),
                }
                client.lookup(path).await.map_err(fail)?
            }
            Err(error) => return Err(fail(error)),
        };
        client.set_attributes_of(node.handle, times).await.map_err(fail)?;
        Ok(true)
    }
}

/// Date and time of day, in UTC.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    nanoseconds: u32,
    /// Offset from UTC, in seconds.
    offset: i64,
}

impl Moment {
    /// Returns the time; `None` if a field is out of range, or the protocol cannot express the time.
    fn time(self) -> Option<NfsTime> {
        let Self { year, month, day, hour, minute, second, nanoseconds, offset } = self;
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        let valid = (1..=days).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            // A leap second counts as the second after it.
            && (0..=60).contains(&second);
        if !valid {
            return None;
        }
        // Years are counted from March, so that the leap day is the last day of a year.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
            + year.div_euclid(400)
            + (153 * month + 2) / 5
            + day
            - 1
            - 719_468;
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
        Some(NfsTime { seconds: u32::try_from(seconds).ok()?, nanoseconds })
    }
}

/// Parses a time; see the help of `touch`.
pub(super) fn parse(text: &str) -> Result<NfsTime, String> {
    let parsed = match text.strip_prefix('@') {
        Some(seconds) => parse_seconds(seconds),
        None => parse_moment(text).and_then(Moment::time),
    };
    parsed.ok_or_else(|| {
        format!(
            "{text:?} is not a time from 1970 to 2106, such as 2024-02-29, 2024-02-29T12:34:56Z, 2024-02-29T12:34:56+01:00 or \
             @1709210096"
        )
    })
}

/// Parses seconds since 1970, with or without decimals.
fn parse_seconds(text: &str) -> Option<NfsTime> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    Some(NfsTime {
        seconds: u32::try_from(number(whole, whole.len())?).ok()?,
        nanoseconds: nanoseconds(part)?,
    })
}

fn parse_moment(text: &str) -> Option<Moment> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut fields = date.split('-');
    let mut moment = Moment {
        year: number(fields.next()?, 4)?,
        month: number(fields.next()?, 2)?,
        day: number(fields.next()?, 2)?,
        ..Moment::default()
    };
    if fields.next().is_some() {
        return None;
    }
    let Some(time) = time else { return Some(moment) };
    let time = if let Some(time) = time.strip_suffix(['Z', 'z']) {
        time
    } else if let Some(at) = time.find(['+', '-']) {
        let (time, zone) = time.split_at(at);
        let (hours, minutes) = zone.get(1..)?.split_once(':')?;
        let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
        if hours > 23 || minutes > 59 {
            return None;
        }
        let seconds = hours * 3600 + minutes * 60;
        moment.offset = if zone.starts_with('-') { -seconds } else { seconds };
        time.trim_end()
    } else {
        time
    };
    let mut fields = time.split(':');
    moment.hour = number(fields.next()?, 2)?;
    moment.minute = number(fields.next()?, 2)?;
    if let Some(seconds) = fields.next() {
        let (whole, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
        moment.second = number(whole, 2)?;
        moment.nanoseconds = nanoseconds(part)?;
    }
    if fields.next().is_some() { None } else { Some(moment) }
}

/// Parses `[[CC]YY]MMDDhhmm[.ss]`.
fn parse_stamp(text: &str) -> Result<NfsTime, String> {
    let parsed = || {
        let (stamp, seconds) = match text.split_once('.') {
            Some((stamp, seconds)) => (stamp, number(seconds, 2)?),
            None => (text, 0),
        };
        let (year, rest) = match stamp.len() {
            12 => (number(stamp.get(..4)?, 4)?, stamp.get(4..)?),
            // POSIX: years from 69 are of the last century.
            10 => match number(stamp.get(..2)?, 2)? {
                year @ 69.. => (1900 + year, stamp.get(2..)?),
                year => (2000 + year, stamp.get(2..)?),
            },
            8 => (this_year()?, stamp),
            _ => return None,
        };
        let field = |at: usize| number(rest.get(at..at + 2)?, 2);
        Moment {
            year,
            month: field(0)?,
            day: field(2)?,
            hour: field(4)?,
            minute: field(6)?,
            second: seconds,
            ..Moment::default()
        }
        .time()
    };
    parsed().ok_or_else(|| {
        format!("{text:?} is not a stamp [[CC]YY]MMDDhhmm[.ss] from 1970 to 2106, such as 202402291234.56")
    })
}

fn this_year() -> Option<i64> {
    let now = super::entry::time(std::time::SystemTime::now().into());
    now.get(..4)?.parse().ok()
}

/// Parses exactly this many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let valid = text.len() == digits && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if valid { text.parse().ok() } else { None }
}

/// Parses the decimals of a second. Those after the ninth are left out.
fn nanoseconds(text: &str) -> Option<u32> {
    let valid = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let nine: String = text.chars().chain("000000000".chars()).take(9).collect();
    if valid { nine.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::entry::exact_time;
    use super::*;

    #[test]
    fn times_that_people_type() {
        for (text, exact) in [
            ("1970-01-01", "1970-01-01T00:00:00.000000000Z"),
            ("2024-02-29", "2024-02-29T00:00:00.000000000Z"),
            ("2024-02-29T12:34", "2024-02-29T12:34:00.000000000Z"),
            ("2024-02-29 12:34:56.789", "2024-02-29T12:34:56.789000000Z"),
            ("2024-02-29t12:34:56z", "2024-02-29T12:34:56.000000000Z"),
            ("2024-03-01T00:30:00+01:00", "2024-02-29T23:30:00.000000000Z"),
            ("2023-12-31T23:30:00.1234567891-00:45", "2024-01-01T00:15:00.123456789Z"),
            ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000000000Z"),
            ("2106-02-07T06:28:15Z", "2106-02-07T06:28:15.000000000Z"),
            ("@0", "1970-01-01T00:00:00.000000000Z"),
            ("@951782400.5", "2000-02-29T00:00:00.500000000Z"),
        ] {
            assert_eq!(exact_time(parse(text).unwrap()), exact, "{text}");
        }
        for (text, exact) in [
            ("202402291234.56", "2024-02-29T12:34:56.000000000Z"),
            ("7001010000", "1970-01-01T00:00:00.000000000Z"),
            ("3802291234", ""),
            ("2402291234", "2024-02-29T12:34:00.000000000Z"),
        ] {
            let found = parse_stamp(text).map(exact_time).unwrap_or_default();
            assert_eq!(found, exact, "{text}");
        }
        assert!(exact_time(parse_stamp("01010000").unwrap()).ends_with("-01-01T00:00:00.000000000Z"));
    }

    #[test]
    fn no_times() {
        for text in [
            "",
            "@",
            "@-1",
            "@x",
            "@4294967296",
            "now",
            "2024",
            "2024-2-29",
            "2023-02-29",
            "2024-13-01",
            "2024-00-10",
            "2024-01-32",
            "1969-12-31",
            "2106-02-08",
            "2024-01-01T",
            "2024-01-01T24:00",
            "2024-01-01T12",
            "2024-01-01T12:60",
            "2024-01-01T12:00:61",
            "2024-01-01T12:00:00.",
            "2024-01-01T12:00+1",
            "2024-01-01T12:00+24:00",
            "2024-01-01-01",
            "2024-01-01T12:00:00:00",
            "+024-01-01",
            "é",
        ] {
            assert!(parse(text).unwrap_err().contains("2024-02-29T12:34:56Z"), "{text}");
        }
        for text in ["", "1", "0229123", "20240230123456", "202402301234", "2402291234.5", "240229123x"] {
            assert!(parse_stamp(text).unwrap_err().contains("MMDDhhmm"), "{text}");
        }
    }
}
