//! Uses strongSwan as the other gateway. Two IKE daemons agree on keys. Then Godwit replaces one of
//! them with its keys and SPIs. The other daemon continues with ESP in user space (kernel-libipsec,
//! ESP in UDP).

use std::path::{Path, PathBuf};

use crate::gateway::{End, security_association};
use crate::net::{Host, Net, Running, counter, wait_for};

const CHARON: &str = "/usr/lib/ipsec/charon";

/// The strongSwan daemon of a host. Drop kills it without IKE messages.
struct Charon {
    folder: PathBuf,
    host: Host,
    _daemon: Running,
}

impl Charon {
    /// `ids` holds the own and the other identity. The first entries of `addresses` and `nets` are
    /// the own ones.
    fn start(net: &Net, host: &Host, ids: [&str; 2], addresses: [&str; 2], nets: [&str; 2], proposal: &str) -> Self {
        let folder = net.folder().join(format!("{}-{proposal}", ids[0]));
        std::fs::create_dir(&folder).expect("a folder");
        let at = folder.display();
        // Log level 4 includes the keys.
        let conf = format!(
            "charon {{\n load = random nonce openssl aes sha1 sha2 hmac xcbc cmac kdf gcm ccm chapoly drbg curve25519 kernel-libipsec kernel-netlink \
             socket-default vici\n filelog {{\n log {{\n path = {at}/log\n default = 1\n chd = 4\n flush_line = yes\n }}\n }}\n plugins {{\n \
             vici {{\n socket = unix://{at}/vici\n }}\n }}\n}}\n"
        );
        std::fs::write(folder.join("strongswan.conf"), conf).expect("a file");
        let [id, other_id] = ids;
        let [own, other] = addresses;
        let [ours, theirs] = nets;
        let connection = format!(
            "connections {{\n gw {{\n version = 2\n local_addrs = {own}\n remote_addrs = {other}\n encap = yes\n mobike = no\n \
             rekey_time = 0\n proposals = aes128-sha256-x25519\n local {{\n auth = psk\n id = {id}\n }}\n remote {{\n auth = psk\n id = \
             {other_id}\n }}\n children {{\n net {{\n local_ts = {ours}\n remote_ts = {theirs}\n rekey_time = 0\n esp_proposals = \
             {proposal}\n }}\n }}\n }}\n}}\nsecrets {{\n ike {{\n id-1 = {id}\n id-2 = {other_id}\n secret = \"between us\"\n }}\n}}\n"
        );
        std::fs::write(folder.join("swanctl.conf"), connection).expect("a file");
        // Each daemon has a private `/run`, because the path of its process ID is fixed.
        let line = format!(
            "sh -c 'mount -t tmpfs none /run && STRONGSWAN_CONF={at}/strongswan.conf exec {CHARON} >{at}/printed 2>&1'"
        );
        let daemon = host.start(&line);
        let charon = Self { folder, host: host.clone(), _daemon: daemon };
        wait_for("charon", || charon.folder.join("vici").exists());
        let file = charon.folder.join("swanctl.conf");
        charon.swanctl(&format!("--load-all --file {}", file.display()));
        charon
    }

    fn swanctl(&self, words: &str) -> String {
        let at = self.folder.display();
        self.host.sh(&format!("STRONGSWAN_CONF={at}/strongswan.conf swanctl {words} --uri unix://{at}/vici 2>&1"))
    }

    /// Returns the inbound and the outbound SPI of the agreed SAs.
    fn spis(&self) -> [u32; 2] {
        let printed = self.swanctl("--list-sas --raw");
        ["spi-in=", "spi-out="].map(|key| {
            let (_, rest) = printed.split_once(key).unwrap_or_else(|| panic!("{key}: {printed}"));
            u32::from_str_radix(rest.split_whitespace().next().unwrap_or_default(), 16).expect("an SPI")
        })
    }

    /// Returns a key of the agreed SAs as hexadecimal digits.
    fn key(&self, what: &str) -> Option<String> {
        let log = std::fs::read_to_string(self.folder.join("log")).expect("a log");
        let mut lines = log.lines().skip_while(|line| !line.contains(&format!("{what} => ")));
        let bytes = lines.next()?.split_once("=> ")?.1.split_whitespace().next()?.parse::<usize>().ok()?;
        let digits = lines.take(bytes.div_ceil(16)).flat_map(|line| {
            // Each log line holds sixteen bytes and their text form.
            let (_, dump) = line.split_once("[CHD]").unwrap_or_default();
            let (_, dump) = dump.split_once(": ").unwrap_or_default();
            dump.get(..48).unwrap_or(dump).split_whitespace().take_while(|word| word.len() == 2).map(str::to_lowercase)
        });
        Some(digits.take(bytes).collect())
    }
}

#[test]
fn strongswan_acts_as_the_other_gateway() {
    let Some(mut net) = Net::new(&["ping", "curl", "ethtool", "swanctl"]) else { return };
    if !Path::new(CHARON).exists() {
        godwit_test_support::absent(CHARON);
        return;
    }
    let [a, left, right] = ["a", "gl", "gr"].map(|name| net.host(name));
    net.cable([(&a, "eth0", &["10.1.0.2/24"]), (&left, "lan", &["10.1.0.1/24"])]);
    net.cable([(&left, "wan", &["192.0.2.1/24"]), (&right, "wan", &["192.0.2.2/24"])]);
    a.sh("ip link set eth0 mtu 1400");
    a.sh("ip route add default via 10.1.0.1");
    right.sh("ip address add 10.2.0.2/24 dev lo");
    let (outside, inside) = (["192.0.2.1", "192.0.2.2"], ["10.1.0.0/24", "10.2.0.0/24"]);
    let turned = |[one, other]: [&'static str; 2]| [other, one];
    let block: Vec<u8> = (0..2_000_003u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
    net.file("large", block);
    let folder = net.folder().display();
    let server = right.start(&format!("/usr/bin/python3 -m http.server 8000 --bind 10.2.0.2 --directory {folder}"));
    wait_for("the server", || right.try_sh("ss -Hltn 'sport = 8000' | grep -q .").status.success());
    let sum = |printed: String| printed.split_whitespace().next().map(str::to_owned);
    let expected = sum(a.sh(&format!("sha256sum {folder}/large")));

    for (proposal, encryption, authentication, icv_bytes) in [
        ("aes128gcm16", "aes-128-gcm", None, None),
        ("aes192gcm12", "aes-192-gcm", None, Some(12)),
        ("aes256gcm8", "aes-256-gcm", None, Some(8)),
        ("aes128ccm16", "aes-128-ccm", None, None),
        ("aes192ccm12", "aes-192-ccm", None, Some(12)),
        ("aes256ccm8", "aes-256-ccm", None, Some(8)),
        ("aes128-sha1", "aes-128-cbc", Some("hmac-sha1-96"), None),
        ("aes192-sha1", "aes-192-cbc", Some("hmac-sha1-96"), None),
        ("aes256-sha256", "aes-256-cbc", Some("hmac-sha-256-128"), None),
        ("aes128-sha384", "aes-128-cbc", Some("hmac-sha-384-192"), None),
        ("aes256-sha512", "aes-256-cbc", Some("hmac-sha-512-256"), None),
        ("null-sha512", "null", Some("hmac-sha-512-256"), None),
        ("aes128-aesxcbc", "aes-128-cbc", Some("aes-xcbc-96"), None),
        ("aes256-aescmac", "aes-256-cbc", Some("aes-cmac-96"), None),
        ("aes128ctr-sha256", "aes-128-ctr", Some("hmac-sha-256-128"), None),
        ("chacha20poly1305", "chacha20-poly1305", None, None),
    ] {
        let _other = Charon::start(&net, &right, ["right", "left"], turned(outside), turned(inside), proposal);
        let ours = Charon::start(&net, &left, ["left", "right"], outside, inside, proposal);
        let printed = ours.swanctl("--initiate --child net");
        assert!(printed.contains("initiate completed successfully"), "{proposal}: {printed}");
        let [spi_in, spi_out] = ours.spis();
        // The keys of the initiator protect the packets that it sends.
        let transforms = |side: &str| {
            let key =
                |what: &str| ours.key(&format!("{what} {side} key")).unwrap_or_else(|| panic!("{proposal}: {what}"));
            let encrypted = match encryption {
                "null" => "encryption = \"null\"\n".to_owned(),
                _ => format!("encryption = \"{encryption}\"\nencryption_key = \"{}\"\n", key("encryption")),
            };
            let signed = authentication.map_or_else(String::new, |name| {
                format!("authentication = \"{name}\"\nauthentication_key = \"{}\"\n", key("integrity"))
            });
            let icv = icv_bytes.map_or_else(String::new, |bytes| format!("icv_bytes = {bytes}\n"));
            format!("{encrypted}{signed}{icv}udp_encapsulation = {{}}\n")
        };
        let sas = [
            security_association("out", spi_out, "out", outside, &transforms("initiator")),
            security_association("in", spi_in, "in", turned(outside), &transforms("responder")),
        ];
        drop(ours);

        let end = End { gateway: &left, host: &a, next_mac: right.mac("wan"), outside, inside };
        let config = end.config(&sas.concat(), "protocol = \"esp-in-udp\"");
        let godwit = left.godwit(&net, &config, &["lan", "wan"]);
        // The user-space ESP of charon loses packets on a loaded machine.
        let ping = || a.try_sh("ping -c 5 -i 0.1 -W 2 10.2.0.2").stdout;
        wait_for(proposal, || String::from_utf8_lossy(&ping()).contains("5 received"));
        let fetched = sum(a.sh("curl -s --max-time 30 http://10.2.0.2:8000/large | sha256sum"));
        assert_eq!(fetched, expected, "{proposal}");
        let report = godwit.stop();
        // The inner packets of strongSwan have at most 1400 bytes.
        assert!(counter(&report, "ipsec_verdict_decrypted") > 1000, "{proposal}: {report:#}");
        assert!(counter(&report, "ipsec_verdict_encrypted") > 5, "{proposal}: {report:#}");
        assert_eq!(counter(&report, "ipsec_dropped_authentication"), 0, "{proposal}: {report:#}");
    }
    drop(server);
}
