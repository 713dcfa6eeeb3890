//! Fields are the parts of traffic that rules inspect. Suricata calls them sticky buffers.

use crate::app::{App, AppSet, Direction};

/// Parser progress at which a transaction field becomes available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// The field does not exist in this direction.
    Never,
    /// The field becomes available at this parser progress, and may grow until the next one.
    At(u8),
}

/// Kind of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Part of one packet.
    Packet,
    /// Part of a transaction.
    Transaction,
    /// Part of a transaction that can repeat, such as a header line. All tests of a rule must match
    /// the same occurrence.
    Repeated,
    /// Number in a transaction, stored as 8 bytes in big-endian order.
    Number,
    /// Number that can occur several times in a transaction.
    Numbers,
}

/// Description of a field.
#[derive(Debug)]
pub struct FieldInfo {
    /// Keyword of the field.
    pub name: &'static str,
    /// Other keywords with the same meaning.
    pub aliases: &'static [&'static str],
    /// Keyword that moves the `content` before it to this field.
    pub modifier: Option<&'static str>,
    /// Application protocols that have the field. The list is empty for packet fields.
    pub apps: &'static [App],
    /// Kind of the field.
    pub kind: Kind,
    /// Availability of the field, for each direction.
    pub ready: [Ready; 2],
}

const NO: Ready = Ready::Never;
const fn at(progress: u8) -> Ready {
    Ready::At(progress)
}

macro_rules! fields {
    ($($variant:ident $name:literal [$($alias:literal)*] $(~ $modifier:literal)? {$($app:ident)*} $kind:ident $to_server:expr, $to_client:expr;)*) => {
        /// Part of traffic that a rule inspects. [`Field::info`] describes each field.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Field { $($variant,)* }

        const FIELDS: &[(Field, FieldInfo)] = &[$((Field::$variant, FieldInfo {
            name: $name,
            aliases: &[$($alias),*],
            modifier: { let _m: Option<&'static str> = None; $(let _m = Some($modifier);)? _m },
            apps: &[$(App::$app),*],
            kind: Kind::$kind,
            ready: [$to_server, $to_client],
        }),)*];
    };
}

// Numbers are parser progress values. For HTTP, 1 is the start line, 2 the headers, 3 the body, 4
// the trailer, and 5 the end.
fields! {
    Payload "pkt_data" [] {} Packet NO, NO;
    Ipv4Header "ipv4.hdr" [] {} Packet NO, NO;
    Ipv6Header "ipv6.hdr" [] {} Packet NO, NO;
    TcpHeader "tcp.hdr" [] {} Packet NO, NO;
    UdpHeader "udp.hdr" [] {} Packet NO, NO;
    Icmpv4Header "icmpv4.hdr" [] {} Packet NO, NO;
    Icmpv6Header "icmpv6.hdr" [] {} Packet NO, NO;
    EtherHeader "ether.hdr" [] {} Packet NO, NO;
    SctpHeader "sctp.hdr" [] {} Packet NO, NO;
    SctpChunkData "sctp.chunk_data" [] {} Packet NO, NO;

    HttpUri "http.uri" ["http_uri"] ~ "http_uri" {Http Http2} Transaction at(1), NO;
    HttpUriRaw "http.uri.raw" ["http_raw_uri"] ~ "http_raw_uri" {Http Http2} Transaction at(1), NO;
    HttpMethod "http.method" ["http_method"] ~ "http_method" {Http Http2} Transaction at(1), NO;
    HttpProtocol "http.protocol" ["http_protocol"] {Http Http2} Transaction at(1), at(1);
    HttpRequestLine "http.request_line" ["http_request_line"] {Http Http2} Transaction at(1), NO;
    HttpResponseLine "http.response_line" ["http_response_line"] {Http Http2} Transaction NO, at(1);
    HttpStatCode "http.stat_code" ["http_stat_code"] ~ "http_stat_code" {Http Http2} Transaction NO, at(1);
    HttpStatMsg "http.stat_msg" ["http_stat_msg"] ~ "http_stat_msg" {Http Http2} Transaction NO, at(1);
    HttpHeader "http.header" ["http_header"] ~ "http_header" {Http Http2} Transaction at(2), at(2);
    HttpHeaderRaw "http.header.raw" ["http_raw_header"] ~ "http_raw_header" {Http Http2} Transaction at(2), at(2);
    HttpRequestHeader "http.request_header" [] {Http Http2} Repeated at(2), NO;
    HttpResponseHeader "http.response_header" [] {Http Http2} Repeated NO, at(2);
    HttpHeaderNames "http.header_names" ["http_header_names"] {Http Http2} Transaction at(2), at(2);
    HttpCookie "http.cookie" ["http_cookie"] ~ "http_cookie" {Http Http2} Transaction at(2), at(2);
    HttpUserAgent "http.user_agent" ["http_user_agent"] ~ "http_user_agent" {Http Http2} Transaction at(2), NO;
    HttpHost "http.host" ["http_host"] ~ "http_host" {Http Http2} Transaction at(2), NO;
    HttpHostRaw "http.host.raw" ["http_raw_host"] ~ "http_raw_host" {Http Http2} Transaction at(2), NO;
    HttpAccept "http.accept" ["http_accept"] {Http Http2} Transaction at(2), NO;
    HttpAcceptEnc "http.accept_enc" ["http_accept_enc"] {Http Http2} Transaction at(2), NO;
    HttpAcceptLang "http.accept_lang" ["http_accept_lang"] {Http Http2} Transaction at(2), NO;
    HttpReferer "http.referer" ["http_referer"] {Http Http2} Transaction at(2), NO;
    HttpConnection "http.connection" ["http_connection"] {Http Http2} Transaction at(2), at(2);
    HttpContentType "http.content_type" ["http_content_type"] {Http Http2} Transaction at(2), at(2);
    HttpContentLen "http.content_len" ["http_content_len"] {Http Http2} Transaction at(2), at(2);
    HttpLocation "http.location" [] {Http Http2} Transaction NO, at(2);
    HttpServer "http.server" [] {Http Http2} Transaction NO, at(2);
    HttpStart "http.start" ["http_start"] {Http} Transaction at(2), at(2);
    HttpRequestBody "http.request_body" ["http_client_body" "http.body"] ~ "http_client_body" {Http Http2} Transaction at(3), NO;
    HttpResponseBody "http.response_body" ["http_server_body"] ~ "http_server_body" {Http Http2} Transaction NO, at(3);
    FileData "file.data" ["file_data"] {Http Http2 Smtp FtpData Smb Nfs} Repeated at(3), at(3);
    FileName "file.name" ["filename"] {Http Http2 Smtp FtpData Smb Nfs Ftp} Repeated at(3), at(3);

    AppEvent "app-layer-event" [] {Http Http2 Dns Tls Ssh Smtp Ftp Smb Sip Quic} Repeated at(0), at(0);

    DnsQuery "dns.query" ["dns_query" "dns.query.name"] {Dns} Repeated at(0), at(0);
    DnsQueriesRrname "dns.queries.rrname" [] {Dns} Repeated at(0), at(0);
    DnsAnswersRrname "dns.answers.rrname" ["dns.answer.name"] {Dns} Repeated at(0), at(0);
    DnsAuthoritiesRrname "dns.authorities.rrname" [] {Dns} Repeated at(0), at(0);
    DnsAdditionalsRrname "dns.additionals.rrname" [] {Dns} Repeated at(0), at(0);
    DnsOpcode "dns.opcode" [] {Dns} Number at(0), at(0);
    DnsRcode "dns.rcode" [] {Dns} Number at(0), at(0);
    DnsRrtype "dns.rrtype" [] {Dns} Numbers at(0), at(0);

    TlsSni "tls.sni" ["tls_sni"] {Tls} Transaction at(1), NO;
    TlsCertSubject "tls.cert_subject" ["tls_cert_subject"] {Tls} Transaction at(3), at(3);
    TlsCertIssuer "tls.cert_issuer" ["tls_cert_issuer"] {Tls} Transaction at(3), at(3);
    TlsCertSerial "tls.cert_serial" ["tls_cert_serial"] {Tls} Transaction at(3), at(3);
    TlsCertFingerprint "tls.cert_fingerprint" ["tls_cert_fingerprint"] {Tls} Transaction at(3), at(3);
    TlsCerts "tls.certs" [] {Tls} Repeated at(3), at(3);
    TlsSubjectAltName "tls.subjectaltname" [] {Tls} Repeated NO, at(3);
    TlsAlpn "tls.alpn" [] {Tls} Repeated at(1), at(1);
    TlsRandom "tls.random" [] {Tls} Transaction at(1), at(1);
    TlsRandomTime "tls.random_time" [] {Tls} Transaction at(1), at(1);
    TlsRandomBytes "tls.random_bytes" [] {Tls} Transaction at(1), at(1);
    TlsVersion "tls.version" [] {Tls} Number at(1), at(1);
    Ja3Hash "ja3.hash" ["ja3_hash"] {Tls Quic} Transaction at(1), NO;
    Ja3String "ja3.string" ["ja3_string"] {Tls Quic} Transaction at(1), NO;
    Ja3sHash "ja3s.hash" [] {Tls Quic} Transaction NO, at(1);
    Ja3sString "ja3s.string" [] {Tls Quic} Transaction NO, at(1);
    Ja4Hash "ja4.hash" [] {Tls Quic} Transaction at(1), NO;

    SshProto "ssh.proto" ["ssh_proto" "ssh.protoversion"] {Ssh} Transaction at(1), at(1);
    SshSoftware "ssh.software" ["ssh_software" "ssh.softwareversion"] {Ssh} Transaction at(1), at(1);
    SshHassh "ssh.hassh" [] {Ssh} Transaction at(1), NO;
    SshHasshString "ssh.hassh.string" [] {Ssh} Transaction at(1), NO;
    SshHasshServer "ssh.hassh.server" [] {Ssh} Transaction NO, at(1);
    SshHasshServerString "ssh.hassh.server.string" [] {Ssh} Transaction NO, at(1);

    SmtpHelo "smtp.helo" [] {Smtp} Transaction at(0), NO;
    SmtpMailFrom "smtp.mail_from" [] {Smtp} Transaction at(0), NO;
    SmtpRcptTo "smtp.rcpt_to" [] {Smtp} Repeated at(0), NO;
    EmailFrom "email.from" [] {Smtp} Transaction at(0), NO;
    EmailTo "email.to" [] {Smtp} Transaction at(0), NO;
    EmailCc "email.cc" [] {Smtp} Transaction at(0), NO;
    EmailSubject "email.subject" [] {Smtp} Transaction at(0), NO;
    EmailDate "email.date" [] {Smtp} Transaction at(0), NO;
    EmailMessageId "email.message_id" [] {Smtp} Transaction at(0), NO;
    EmailXMailer "email.x_mailer" [] {Smtp} Transaction at(0), NO;
    EmailReceived "email.received" [] {Smtp} Repeated at(0), NO;
    EmailUrl "email.url" [] {Smtp} Repeated at(0), NO;

    FtpCommand "ftp.command" [] {Ftp} Transaction at(0), NO;
    FtpCommandData "ftp.command_data" [] {Ftp} Transaction at(0), NO;
    FtpReply "ftp.reply" [] {Ftp} Repeated NO, at(0);
    FtpCompletionCode "ftp.completion_code" [] {Ftp} Repeated NO, at(0);

    SmbNamedPipe "smb.named_pipe" ["smb_named_pipe"] {Smb} Transaction at(0), NO;
    SmbShare "smb.share" ["smb_share"] {Smb} Transaction at(0), NO;
    SmbNtlmsspUser "smb.ntlmssp_user" [] {Smb} Transaction at(0), NO;
    SmbNtlmsspDomain "smb.ntlmssp_domain" [] {Smb} Transaction at(0), NO;
    DceStubData "dce_stub_data" ["dcerpc.stub_data"] {Smb Dcerpc} Transaction at(0), at(0);
    DceOpnum "dcerpc.opnum" ["dce_opnum"] {Smb Dcerpc} Number at(0), NO;

    SipMethod "sip.method" [] {Sip} Transaction at(0), NO;
    SipUri "sip.uri" [] {Sip} Transaction at(0), NO;
    SipProtocol "sip.protocol" [] {Sip} Transaction at(0), at(0);
    SipStatCode "sip.stat_code" [] {Sip} Transaction NO, at(0);
    SipStatMsg "sip.stat_msg" [] {Sip} Transaction NO, at(0);
    SipRequestLine "sip.request_line" [] {Sip} Transaction at(0), NO;
    SipResponseLine "sip.response_line" [] {Sip} Transaction NO, at(0);
    SipFrom "sip.from" [] {Sip} Repeated at(0), at(0);
    SipTo "sip.to" [] {Sip} Repeated at(0), at(0);
    SipVia "sip.via" [] {Sip} Repeated at(0), at(0);
    SipUserAgent "sip.user_agent" [] {Sip} Repeated at(0), at(0);
    SipContentType "sip.content_type" [] {Sip} Repeated at(0), at(0);
    SipContentLength "sip.content_length" [] {Sip} Repeated at(0), at(0);

    SnmpCommunity "snmp.community" [] {Snmp} Transaction at(0), at(0);
    SnmpUsm "snmp.usm" [] {Snmp} Transaction at(0), at(0);
    SnmpVersion "snmp.version" [] {Snmp} Number at(0), at(0);
    SnmpPduType "snmp.pdu_type" [] {Snmp} Number at(0), at(0);

    QuicVersion "quic.version" [] {Quic} Transaction at(0), at(0);
    QuicSni "quic.sni" [] {Quic} Transaction at(0), NO;
    QuicUa "quic.ua" [] {Quic} Transaction at(0), NO;
    QuicCyuHash "quic.cyu.hash" [] {Quic} Repeated at(0), NO;
    QuicCyuString "quic.cyu.string" [] {Quic} Repeated at(0), NO;
}

impl Field {
    /// Returns the description.
    pub fn info(self) -> &'static FieldInfo {
        &FIELDS[self as usize].1
    }

    /// Number of fields.
    pub const COUNT: usize = FIELDS.len();

    /// Returns the field with this number.
    pub fn from_index(index: usize) -> Option<Self> {
        FIELDS.get(index).map(|entry| entry.0)
    }

    /// Returns the field that a keyword selects for the next options, or `None` for other keywords.
    pub fn sticky(keyword: &str) -> Option<Self> {
        FIELDS.iter().find(|(_, info)| info.name == keyword || info.aliases.contains(&keyword)).map(|(field, _)| *field)
    }

    /// Returns the field to which a modifier moves the previous `content` option, or `None` for
    /// other keywords.
    pub fn modifier(keyword: &str) -> Option<Self> {
        FIELDS.iter().find(|(_, info)| info.modifier == Some(keyword)).map(|(field, _)| *field)
    }

    /// Returns the protocols that have the field.
    pub fn apps(self) -> AppSet {
        self.info().apps.iter().copied().collect()
    }

    /// Returns whether the field belongs to application protocol transactions.
    pub fn is_transaction(self) -> bool {
        self.info().kind != Kind::Packet
    }

    /// Returns when the field is available in one direction.
    pub fn ready(self, direction: Direction) -> Ready {
        self.info().ready[direction as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_unique() {
        let mut keywords: Vec<&str> =
            FIELDS.iter().flat_map(|(_, info)| info.aliases.iter().copied().chain([info.name])).collect();
        keywords.sort_unstable();
        assert!(keywords.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(Field::sticky("http.uri"), Some(Field::HttpUri));
        assert_eq!(Field::modifier("http_raw_uri"), Some(Field::HttpUriRaw));
        assert_eq!(Field::from_index(Field::COUNT), None);
    }
}
