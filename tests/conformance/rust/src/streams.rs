//! AMQP over streams of other kinds than TCP: TLS, and a WebSocket in TLS.

use std::env;
use std::error::Error;
use std::sync::Arc;

use fe2o3_amqp_ws::WebSocketStream;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::world::{body, entity, fields, one, same, text, Done, Ends, Told};

const TLS: &str = "SHARDBUS_TLS_CONNECTION_STRING";

/// Trusts the authorities of the test only, and checks the name.
async fn encrypted() -> Result<(TlsStream<TcpStream>, String), Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(env::var("SHARDBUS_CA_FILE")?)? {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let endpoint = fields(TLS)?["Endpoint"].replace("sb://", "");
    let address = endpoint.trim_end_matches('/').to_string();
    let (host, _) = address.split_once(':').ok_or("no port")?;
    let name = ServerName::try_from(host.to_string())?;
    let tcp = TcpStream::connect(&address).await?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    Ok((stream, address))
}

pub async fn tls() -> Told {
    let (stream, _) = encrypted().await?;
    there_and_back(Ends::open_over(TLS, stream).await?).await?;
    Ok("amqps, with the name of the certificate checked".to_string())
}

pub async fn websocket() -> Told {
    let (stream, address) = encrypted().await?;
    let url = format!("wss://{address}/$servicebus/websocket");
    let socket = WebSocketStream::connect_with_stream(url, stream).await?;
    there_and_back(Ends::open_over(TLS, socket).await?).await?;
    Ok("wss, with the subprotocol amqp".to_string())
}

async fn there_and_back(mut ends: Ends) -> Done {
    ends.send(&entity("results"), vec![text("x")]).await?;
    let mut receiver = ends.locking(&entity("results")).await?;
    let found = one(&mut receiver).await?;
    receiver.accept(&found).await?;
    same("body", body(&found), "x".to_string())?;
    ends.close().await
}
