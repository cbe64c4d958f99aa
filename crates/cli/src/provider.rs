//! Choice of the RDMA provider: software iWARP, or the adapters of this machine.
//!
//! Every command that connects or listens asks here, once for each address. A command sees a [`Connector`] or
//! a [`Listener`] and the choice to tell its user; it never distinguishes providers itself.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use rpcrdma_ibverbs::{
    DeviceError, IbverbsConnector, IbverbsListener, NoDevice, device_at, device_towards, is_on_no_device,
};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener, LargeFpdu, Timeouts};
use rpcrdma_verbs::{Connector, Listener};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;

use crate::arguments::{Proto, resolve};
use crate::exit::Failure;

/// Directory of the kernel's RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

const HEADING: &str = "RDMA provider";

/// A provider, as the command line names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Provider {
    /// Adapters for addresses that lie on one, software iWARP for all others.
    #[default]
    Auto,
    /// Software iWARP.
    Iwarp,
    /// Adapters, or the adapter of this name only.
    Verbs(Option<String>),
}

impl FromStr for Provider {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("verbs:")) {
            ("auto", _) => Ok(Self::Auto),
            ("iwarp", _) => Ok(Self::Iwarp),
            ("verbs", _) => Ok(Self::Verbs(None)),
            (_, Some(device)) if !device.is_empty() => Ok(Self::Verbs(Some(device.to_owned()))),
            _ => Err(format!(
                "{text:?} is not auto, iwarp, verbs, or verbs:DEVICE with a name that rpcrdma devices prints"
            )),
        }
    }
}

/// Options that choose a provider and configure adapters.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ProviderOptions {
    /// Who moves the data: iwarp (software iWARP over TCP), verbs (RDMA adapters, through libibverbs),
    /// verbs:DEVICE (only this adapter, by its name in `rpcrdma devices`), or auto. auto takes verbs for
    /// an address that lies on an adapter, or is reached through one, and iwarp for all others. Loopback
    /// addresses, 0.0.0.0 and [::] never lie on an adapter. -v shows the choice and its reason. Both ends
    /// need providers that speak the same protocol
    #[arg(long, value_name = "PROVIDER", default_value = "auto", help_heading = HEADING)]
    pub(crate) provider: Provider,
    /// Type of service of an adapter's packets, 0 to 255 or 0x00 to 0xff (RFC 2474: the upper six bits are
    /// the DSCP). On RoCE and InfiniBand it chooses the service level, and the client's choice holds for both
    /// directions. No effect on iwarp [default: the system chooses]
    #[arg(long, value_name = "NUMBER", value_parser = octet, help_heading = HEADING)]
    pub(crate) tos: Option<u8>,
    /// Register memory for each call, even on an adapter that has memory windows. Slower; for adapters whose
    /// windows do not work. No effect on iwarp
    #[arg(long, help_heading = HEADING)]
    pub(crate) no_windows: bool,
    /// Fit each FPDU of software iWARP to a TCP segment (RFC 5044 §4.5). By default a peer that offers to take
    /// longer ones, as rpcrdma does, gets them: fewer headers and CRCs. No effect on adapters
    #[arg(long, help_heading = HEADING)]
    pub(crate) no_large_fpdu: bool,
}

/// Parses an octet, decimal or hexadecimal.
fn octet(text: &str) -> Result<u8, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // `from_str_radix` accepts a sign.
        Some(digits) if digits.starts_with(|first: char| first.is_ascii_hexdigit()) => {
            u8::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None if text.starts_with(|first: char| first.is_ascii_digit()) => text.parse().ok(),
        None => None,
    };
    parsed.ok_or_else(|| "allowed are 0 to 255, or 0x00 to 0xff".to_owned())
}

impl ProviderOptions {
    /// Checks these options and `--no-crc` against the providers that will carry connections.
    ///
    /// # Errors
    /// An option has no effect on any of them.
    pub(crate) fn check<'a>(
        &'a self,
        providers: impl IntoIterator<Item = &'a Provider>,
        no_crc: bool,
    ) -> Result<(), Failure> {
        let (mut all_verbs, mut all_iwarp) = (true, true);
        for provider in providers {
            all_verbs &= matches!(provider, Provider::Verbs(_));
            all_iwarp &= *provider == Provider::Iwarp;
        }
        let wrong = if all_verbs && no_crc {
            "--no-crc has no meaning with the provider verbs, whose adapters check packets themselves: leave it out, or choose iwarp"
        } else if all_verbs && self.no_large_fpdu {
            "--no-large-fpdu is about software iWARP: it has no meaning with the provider verbs"
        } else if all_iwarp && self.tos.is_some() {
            "--tos is about RDMA adapters: it has no meaning with the provider iwarp"
        } else if all_iwarp && self.no_windows {
            "--no-windows is about RDMA adapters: it has no meaning with the provider iwarp"
        } else {
            return Ok(());
        };
        Err(Failure::usage(wrong))
    }

    /// Returns the option given, if one is, for a command line without RDMA.
    pub(crate) fn given(&self) -> Option<&'static str> {
        if self.provider != Provider::Auto {
            Some("--provider")
        } else if self.tos.is_some() {
            Some("--tos")
        } else if self.no_windows {
            Some("--no-windows")
        } else {
            self.no_large_fpdu.then_some("--no-large-fpdu")
        }
    }
}

/// A value of `serve --listen`: an address, with a provider of its own or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenAt {
    provider: Option<Provider>,
    /// Address and port.
    pub(crate) address: SocketAddr,
}

impl ListenAt {
    /// Returns the provider of this listener, which is `--provider` unless the address has one.
    pub(crate) fn provider<'a>(&'a self, options: &'a ProviderOptions) -> &'a Provider {
        self.provider.as_ref().unwrap_or(&options.provider)
    }
}

impl FromStr for ListenAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let prefixed =
            [("auto:", Provider::Auto), ("iwarp:", Provider::Iwarp), ("verbs:", Provider::Verbs(None))]
                .into_iter()
                .find_map(|(prefix, provider)| Some((provider, text.strip_prefix(prefix)?)));
        let (provider, address) = match prefixed {
            Some((provider, address)) => (Some(provider), address),
            None => (None, text),
        };
        let named = |wrong: String| format!("{wrong}, alone or after iwarp:, verbs: or auto:");
        Ok(Self { provider, address: resolve(address, Proto::Rdma.default_port()).map_err(named)? })
    }
}

/// The provider chosen for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// Software iWARP.
    Iwarp,
    /// Adapters.
    Verbs {
        /// The adapter that made `auto` choose, or that the command line names.
        device: Option<String>,
        /// Whether the command line left the choice to `auto`.
        automatic: bool,
    },
}

impl Chosen {
    /// Chooses for an address, and tells the log. `on_device` finds the adapter of the address, and is asked only
    /// by `auto`.
    async fn new(
        provider: &Provider,
        address: SocketAddr,
        on_device: impl Future<Output = Result<String, NoDevice>>,
    ) -> Self {
        let (chosen, reason) = match provider {
            Provider::Iwarp => (Self::Iwarp, "it was named".to_owned()),
            Provider::Verbs(device) => {
                (Self::Verbs { device: device.clone(), automatic: false }, "it was named".to_owned())
            }
            Provider::Auto => match on_device.await {
                Ok(device) => {
                    let reason = format!("{device} has or reaches the address");
                    (Self::Verbs { device: Some(device), automatic: true }, reason)
                }
                Err(reason) => (Self::Iwarp, reason.to_string()),
            },
        };
        tracing::info!(%address, provider = chosen.name(), device = chosen.device(), reason, "RDMA provider");
        chosen
    }

    /// Returns the name of the provider.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Iwarp => "iwarp",
            Self::Verbs { .. } => "verbs",
        }
    }

    /// Returns the hint for a connection that failed: only the user knows what the peer speaks.
    pub(crate) fn hint(&self) -> String {
        match self.automatic() {
            Some(device) => format!(
                "; auto chose the adapter {device}: add --provider iwarp if the peer speaks software iWARP"
            ),
            None => String::new(),
        }
    }

    /// Returns the adapter if `auto` chose it.
    fn automatic(&self) -> Option<&str> {
        match self {
            Self::Verbs { device, automatic: true } => device.as_deref(),
            _ => None,
        }
    }

    fn device(&self) -> Option<&str> {
        match self {
            Self::Verbs { device, .. } => device.as_deref(),
            Self::Iwarp => None,
        }
    }
}

/// An open listener.
pub(crate) enum Opened {
    /// The TCP socket of software iWARP, which can be passed to another process.
    Iwarp(TcpListener),
    /// A listener of adapters.
    Verbs(Box<dyn Listener>, Chosen),
}

/// Settings of connections, whichever provider carries them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<'a> {
    /// Options of the command line.
    pub(crate) options: &'a ProviderOptions,
    /// Whether software iWARP requests no CRCs.
    pub(crate) no_crc: bool,
    /// Timeouts of software iWARP. Adapters share the one of connection set-up.
    pub(crate) timeouts: Timeouts,
}

impl Settings<'_> {
    /// Returns a way to connect to this address, and the provider chosen.
    ///
    /// # Errors
    /// This machine lacks what the provider needs; the text names it.
    pub(crate) async fn connector(&self, to: SocketAddr) -> Result<(Arc<dyn Connector>, Chosen), String> {
        let chosen = Chosen::new(&self.options.provider, to, device_towards(to)).await;
        let connector: Arc<dyn Connector> = match self.adapters(&chosen)? {
            None => Arc::new(IwarpConnector::new(self.iwarp())),
            Some(config) => Arc::new(IbverbsConnector::new(config)),
        };
        Ok((connector, chosen))
    }

    /// Takes over a listening socket for software iWARP.
    pub(crate) fn adopt(&self, listener: TcpListener) -> Box<dyn Listener> {
        Box::new(IwarpListener::from_tcp(listener, self.iwarp()))
    }

    /// Listens at this address. Returns the listener and the provider chosen.
    ///
    /// # Errors
    /// The provider refuses the address, or this machine lacks what the provider needs.
    pub(crate) async fn listen(
        &self,
        provider: &Provider,
        address: SocketAddr,
    ) -> io::Result<(Box<dyn Listener>, Chosen)> {
        Ok(match self.open(provider, address).await? {
            Opened::Iwarp(listener) => (self.adopt(listener), Chosen::Iwarp),
            Opened::Verbs(listener, chosen) => (listener, chosen),
        })
    }

    /// Opens a listener at this address. [`Self::adopt`] makes a listener of a TCP socket.
    ///
    /// # Errors
    /// As [`Self::listen`].
    pub(crate) async fn open(&self, provider: &Provider, address: SocketAddr) -> io::Result<Opened> {
        let chosen = Chosen::new(provider, address, device_at(address.ip())).await;
        Ok(match self.adapters(&chosen).map_err(io::Error::other)? {
            None => Opened::Iwarp(TcpListener::bind(address).await?),
            Some(config) => {
                let bound = IbverbsListener::bind(address, config).await;
                let listener = bound.map_err(|error| match chosen.automatic() {
                    Some(device) => io::Error::new(
                        error.kind(),
                        format!(
                            "{error} (auto chose the adapter {device}; --provider iwarp listens in software)"
                        ),
                    ),
                    None => error,
                })?;
                Opened::Verbs(Box::new(listener), chosen)
            }
        })
    }

    fn iwarp(&self) -> rpcrdma_iwarp::Config {
        let mut config = rpcrdma_iwarp::Config::default();
        config.crc = !self.no_crc;
        // All peers of the commands speak RPC-over-RDMA, which finds its entry among others in private data.
        config.large_fpdu = if self.options.no_large_fpdu { LargeFpdu::Never } else { LargeFpdu::Offered };
        config.timeouts = self.timeouts;
        config
    }

    /// Returns the configuration of adapters if they are chosen.
    fn adapters(&self, chosen: &Chosen) -> Result<Option<rpcrdma_ibverbs::Config>, String> {
        let Chosen::Verbs { device, automatic } = chosen else { return Ok(None) };
        raise_locked_memory();
        let mut config = rpcrdma_ibverbs::Config::default();
        if !automatic {
            require(device.as_deref())?;
            // Routing finds the device that `auto` has found by routing.
            config.device.clone_from(device);
        }
        config.registrations_only = self.options.no_windows;
        config.type_of_service = self.options.tos;
        config.setup = self.timeouts.startup;
        Ok(Some(config))
    }
}

/// Lifts the limit of locked memory (`RLIMIT_MEMLOCK`), or raises it to the hard limit: adapters lock the memory that they
/// use. Returns whether there is no limit any more.
pub(crate) fn raise_locked_memory() -> bool {
    let limit = getrlimit(Resource::Memlock);
    if limit.current.is_none()
        || setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_ok()
    {
        return true;
    }
    // Only a privileged process may lift the hard limit.
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Memlock, raised) {
        tracing::warn!(%error, limit = ?limit.current, "cannot raise the limit of locked memory");
        return false;
    }
    match limit.maximum {
        None => true,
        Some(bytes) => {
            tracing::debug!(bytes, "limit of locked memory");
            false
        }
    }
}

/// Returns whether a listener at this address is one of an adapter: by its provider, or because the address lies on one.
pub(crate) async fn is_of_adapter(provider: &Provider, address: SocketAddr) -> bool {
    matches!(Chosen::new(provider, address, device_at(address.ip())).await, Chosen::Verbs { .. })
}

/// Returns whether a listener at this address may be one of an adapter. The function loads the libraries of
/// adapters, which a process confined afterwards can no longer find everywhere.
pub(crate) fn may_use_adapters(provider: &Provider, ip: IpAddr) -> bool {
    let possible = match provider {
        Provider::Auto => !is_on_no_device(ip),
        Provider::Iwarp => false,
        Provider::Verbs(_) => true,
    };
    possible && require(None).is_ok()
}

/// Checks that this machine has RDMA devices, and the one that is named.
fn require(device: Option<&str>) -> Result<(), String> {
    rpcrdma_ibverbs::is_available().map_err(|error| error.to_string())?;
    require_below(Path::new(DEVICES), device)
}

fn require_below(devices: &Path, device: Option<&str>) -> Result<(), String> {
    let entries = match fs::read_dir(devices) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DeviceError::NoSubsystem.to_string());
        }
        Err(error) => return Err(format!("{} cannot be read: {error}", devices.display())),
    };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    match device {
        _ if names.is_empty() => {
            Err("this machine has no RDMA device: load the adapter's module, or, for tests only, make a \
                 software device (modprobe rdma_rxe; rdma link add rxe0 type rxe netdev NAME)"
                .to_owned())
        }
        Some(device) if !names.iter().any(|name| name == device) => {
            Err(format!("no RDMA device is named {device:?}; there are {}", names.join(", ")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(provider: &str) -> ProviderOptions {
        ProviderOptions { provider: provider.parse().unwrap(), ..ProviderOptions::default() }
    }

    #[test]
    fn names_of_providers() {
        let parsed = |text: &str| text.parse::<Provider>();
        assert_eq!(parsed("auto"), Ok(Provider::Auto));
        assert_eq!(parsed("iwarp"), Ok(Provider::Iwarp));
        assert_eq!(parsed("verbs"), Ok(Provider::Verbs(None)));
        assert_eq!(parsed("verbs:rxe0"), Ok(Provider::Verbs(Some("rxe0".into()))));
        for text in ["", "Verbs", "verbs:", "iwarp:x", "roce"] {
            let refused = parsed(text).unwrap_err();
            assert!(refused.contains(&format!("{text:?} is not auto, iwarp, verbs")), "{refused}");
        }
    }

    #[test]
    fn addresses_with_a_provider_and_without() {
        let parsed = |text: &str| text.parse::<ListenAt>().unwrap();
        let of = options("iwarp");
        for (text, provider, address) in [
            ("192.0.2.1:20049", Provider::Iwarp, "192.0.2.1:20049"),
            ("verbs:192.0.2.1:20049", Provider::Verbs(None), "192.0.2.1:20049"),
            ("iwarp:[::]:0", Provider::Iwarp, "[::]:0"),
            ("auto:[2001:db8::1]:2", Provider::Auto, "[2001:db8::1]:2"),
            ("verbs:192.0.2.1", Provider::Verbs(None), "192.0.2.1:20049"),
        ] {
            let at = parsed(text);
            assert_eq!((at.provider(&of), at.address.to_string().as_str()), (&provider, address), "{text}");
        }
        for (text, address) in [
            ("", ""),
            ("verbs:", ""),
            ("verbs:rxe0:192.0.2.1:20049", "rxe0:192.0.2.1:20049"),
            ("tcp:192.0.2.1:20049", "tcp:192.0.2.1:20049"),
        ] {
            let refused = text.parse::<ListenAt>().unwrap_err();
            let named = format!("{address:?} is not an address or host name");
            assert!(refused.contains(&named) && refused.ends_with("auto:"), "{refused}");
        }
    }

    #[tokio::test]
    async fn auto_takes_an_adapter_only_for_its_own_addresses() {
        let chosen = async |provider: Provider, device: Option<&str>| {
            let device = device.map(str::to_owned).ok_or(NoDevice::OfNoInterface);
            Chosen::new(&provider, "192.0.2.1:20049".parse().unwrap(), async { device }).await
        };
        let verbs =
            |device: Option<&str>, automatic| Chosen::Verbs { device: device.map(str::to_owned), automatic };
        assert_eq!(chosen(Provider::Auto, Some("rxe0")).await, verbs(Some("rxe0"), true));
        assert_eq!(chosen(Provider::Auto, None).await, Chosen::Iwarp);
        assert_eq!(chosen(Provider::Iwarp, Some("rxe0")).await, Chosen::Iwarp);
        let named = Provider::Verbs(Some("rxe1".into()));
        assert_eq!(chosen(named, Some("rxe0")).await, verbs(Some("rxe1"), false));
    }

    #[test]
    fn only_the_choice_of_auto_is_doubted() {
        let verbs = |automatic| Chosen::Verbs { device: Some("rxe0".into()), automatic };
        let hint = verbs(true).hint();
        assert!(hint.contains("rxe0") && hint.contains("--provider iwarp"), "{hint}");
        assert_eq!((verbs(false).hint(), Chosen::Iwarp.hint()), (String::new(), String::new()));
        assert_eq!((verbs(true).name(), Chosen::Iwarp.name()), ("verbs", "iwarp"));
    }

    #[test]
    fn a_type_of_service_is_an_octet_in_either_notation() {
        for (text, value) in [("0", 0), ("104", 104), ("255", 255), ("0x68", 104), ("0XfF", 255), ("0x0", 0)]
        {
            assert_eq!(octet(text), Ok(value), "{text}");
        }
        for text in ["", "256", "-1", "+1", "0x", "0x100", "0x+1", "68h", "1 "] {
            assert!(octet(text).unwrap_err().contains("0x00 to 0xff"), "{text}");
        }
    }

    #[test]
    fn options_without_effect_are_refused() {
        let (auto, iwarp, verbs) = (Provider::Auto, Provider::Iwarp, Provider::Verbs(None));
        let tuned = ProviderOptions { tos: Some(104), ..ProviderOptions::default() };
        let registers = ProviderOptions { no_windows: true, ..ProviderOptions::default() };
        let short = ProviderOptions { no_large_fpdu: true, ..ProviderOptions::default() };
        assert_eq!(short.given(), Some("--no-large-fpdu"));
        let refused = |options: &ProviderOptions, providers: &[&Provider], no_crc| {
            options.check(providers.iter().copied(), no_crc).err().map(|failure| failure.to_string())
        };
        for (options, providers, no_crc, said) in [
            (&tuned, vec![&iwarp], false, "--tos is about RDMA adapters"),
            (&registers, vec![&iwarp, &iwarp], false, "--no-windows is about RDMA adapters"),
            (&tuned, vec![&verbs], true, "--no-crc has no meaning"),
            (&short, vec![&verbs], false, "--no-large-fpdu is about software iWARP"),
        ] {
            let refusal = refused(options, &providers, no_crc).unwrap_or_default();
            assert!(refusal.contains(said), "{refusal}");
        }
        // With `auto`, or one listener of several that an option is for, the option may have an effect.
        for (providers, no_crc) in [
            (vec![&auto], true),
            (vec![&iwarp, &verbs], true),
            (vec![&verbs, &iwarp], false),
            (vec![&verbs], false),
        ] {
            assert_eq!(refused(&tuned, &providers, no_crc), None, "{providers:?}");
            assert_eq!(refused(&registers, &providers, no_crc), None, "{providers:?}");
        }
    }

    #[test]
    fn settings_reach_the_configuration_of_both_providers() {
        let options = ProviderOptions { tos: Some(104), no_windows: true, ..options("verbs") };
        let timeouts = Timeouts { startup: std::time::Duration::from_secs(3), ..Timeouts::default() };
        let settings = Settings { options: &options, no_crc: true, timeouts };
        let chosen = Chosen::Verbs { device: Some("rxe0".into()), automatic: true };
        let verbs = settings.adapters(&chosen).unwrap().unwrap();
        assert_eq!((verbs.type_of_service, verbs.registrations_only), (Some(104), true));
        assert_eq!((verbs.device, verbs.setup), (None, timeouts.startup));
        let iwarp = settings.iwarp();
        assert_eq!((iwarp.crc, iwarp.timeouts, iwarp.large_fpdu), (false, timeouts, LargeFpdu::Offered));
        let short = ProviderOptions { no_large_fpdu: true, ..ProviderOptions::default() };
        assert_eq!(Settings { options: &short, ..settings }.iwarp().large_fpdu, LargeFpdu::Never);
        assert!(settings.adapters(&Chosen::Iwarp).unwrap().is_none());
    }

    #[test]
    fn what_a_machine_lacks_is_named() {
        let place = tempfile::tempdir().unwrap();
        let devices = place.path().join("infiniband");
        let lacks = |device| require_below(&devices, device).unwrap_err();
        assert!(lacks(None).contains("modprobe"), "{}", lacks(None));
        fs::create_dir(&devices).unwrap();
        assert!(lacks(Some("rxe0")).contains("no RDMA device: load"), "{}", lacks(Some("rxe0")));
        for name in ["rxe1", "rxe0"] {
            fs::create_dir(devices.join(name)).unwrap();
        }
        assert_eq!(lacks(Some("mlx5_0")), "no RDMA device is named \"mlx5_0\"; there are rxe0, rxe1");
        assert_eq!((require_below(&devices, None), require_below(&devices, Some("rxe1"))), (Ok(()), Ok(())));
    }

    #[test]
    fn locked_memory_is_limited_by_the_hard_limit_alone() {
        let before = getrlimit(Resource::Memlock).maximum;
        let lifted = raise_locked_memory();
        let limit = getrlimit(Resource::Memlock);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(lifted, limit.current.is_none());
        assert!(limit.maximum.is_none() || limit.maximum == before);
    }

    #[test]
    fn a_server_without_adapters_needs_none() {
        assert!(!may_use_adapters(&Provider::Iwarp, "192.0.2.1".parse().unwrap()));
        for ip in ["127.0.0.1", "::1", "0.0.0.0", "::"] {
            assert!(!may_use_adapters(&Provider::Auto, ip.parse().unwrap()), "{ip}");
        }
    }
}
